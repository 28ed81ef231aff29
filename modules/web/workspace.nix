# Workspace, settings and JSON API of each user, as that user. They start when
# somebody looks and end when nobody does.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.agent-box;
  inherit (cfg) web;
  hardening = import ../hardening.nix { inherit lib; };

  socketOf = name: {
    description = "Workspace and settings of ${name}, for the edge";
    wantedBy = [ "sockets.target" ];
    listenStreams = [ "/run/agent-box-settings/${name}.sock" ];
    socketConfig = {
      SocketUser = name;
      SocketGroup = "caddy";
      SocketMode = "0660";
      FileDescriptorName = "web";
    };
  };

  serviceOf = name: {
    description = "Workspace and settings of ${name}";
    requires = [ "agent-box-settings-${name}.socket" ];
    after = [ "agent-box-settings-${name}.socket" ];
    unitConfig = {
      RequiresMountsFor = "/home/${name}";
      StartLimitIntervalSec = 0;
    };
    # The next request starts the new version.
    stopIfChanged = false;
    path = [
      pkgs.systemd
      pkgs.tmux
    ];
    environment = {
      HOME = "/home/${name}";
      LANG = "C.UTF-8";
      SSL_CERT_FILE = "/etc/ssl/certs/ca-certificates.crt";
    };
    serviceConfig = hardening.workspace name // {
      Type = "exec";
      User = name;
      Group = name;
      ExecStart = "${cfg.runtime}/bin/agent-box-web";
      WorkingDirectory = "~";
      Restart = "on-failure";
      RestartSec = "200ms";
      RestartSteps = 10;
      RestartMaxDelaySec = "5s";
      LimitNOFILE = 16384;
      MemoryMax = "512M";
      TasksMax = 128;
    };
  };
in
{
  config = lib.mkIf (cfg.enable && web.enable) {
    systemd.sockets = lib.listToAttrs (
      map (name: lib.nameValuePair "agent-box-settings-${name}" (socketOf name)) web.users
    );
    systemd.services = lib.listToAttrs (
      map (name: lib.nameValuePair "agent-box-settings-${name}" (serviceOf name)) web.users
    );
  };
}
