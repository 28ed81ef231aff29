# Ports on the localhost of the machine that a user also finds on its own one.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.services.agent-box;
  hardening = import ./hardening { inherit lib; };

  # Who is in the network of the machine has them anyway.
  users = lib.filter (name: cfg.users.${name}.networkPrivate) (lib.attrNames cfg.users);

  portSocketOf = name: port: {
    description = "Port ${toString port} of this machine, for ${name}";
    wantedBy = [ "agent-box-${name}.service" ];
    before = [
      "agent-box-${name}.service"
      "shutdown.target"
    ];
    conflicts = [ "shutdown.target" ];
    # Sockets otherwise come before all services, and this one after the user's network.
    unitConfig.DefaultDependencies = false;
    inherit (cfg.inUserNetwork name) bindsTo after;
    listenStreams = [ "127.0.0.1:${toString port}" ];
    socketConfig.NetworkNamespacePath = (cfg.inUserNetwork name).serviceConfig.NetworkNamespacePath;
  };

  portServiceOf = name: port: {
    description = "Port ${toString port} of this machine, for ${name}";
    requires = [ "agent-box-port-${name}-${toString port}.socket" ];
    after = [ "agent-box-port-${name}-${toString port}.socket" ];
    unitConfig.StartLimitIntervalSec = 0;
    serviceConfig = hardening.portForward // {
      ExecStart = "${pkgs.systemd}/lib/systemd/systemd-socket-proxyd --exit-idle-time=60s 127.0.0.1:${toString port}";
    };
  };

  perPort =
    make:
    lib.listToAttrs (
      lib.concatMap (
        name:
        map (
          port: lib.nameValuePair "agent-box-port-${name}-${toString port}" (make name port)
        ) cfg.users.${name}.network.hostPorts
      ) users
    );
in
{
  options.services.agent-box.users = mkOption {
    type = types.attrsOf (
      types.submodule {
        options.network.hostPorts = mkOption {
          type = types.listOf types.port;
          default = [ ];
          example = [ 11434 ];
          description = ''
            TCP ports on the `localhost` of the machine that this user also finds on
            its own `localhost`, for example that of a model server.
          '';
        };
      }
    );
  };

  config = lib.mkIf cfg.enable {
    systemd.services = perPort portServiceOf;
    systemd.sockets = perPort portSocketOf;
  };
}
