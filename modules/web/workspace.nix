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
  hardening = import ../hardening { inherit lib; };

  units = import ./units.nix { inherit lib config; };

  unit = "agent-box-settings";

  socketOf =
    name:
    lib.recursiveUpdate (units.socket name "/run/${unit}/${name}.sock") {
      description = "Workspace and settings of ${name}, for the edge";
      socketConfig.FileDescriptorName = "web";
    };

  serviceOf =
    name:
    lib.foldl' lib.recursiveUpdate (units.service name (hardening.workspace name)) [
      (units.onDemand unit name)
      {
        description = "Workspace and settings of ${name}";
        path = [ pkgs.tmux ];
        environment = {
          HOME = "/home/${name}";
          LANG = "C.UTF-8";
          SSL_CERT_FILE = "/etc/ssl/certs/ca-certificates.crt";
        };
        serviceConfig = {
          ExecStart = "${cfg.runtime}/bin/agent-box-web";
          MemoryMax = "512M";
          TasksMax = 128;
        };
      }
    ];
in
{
  config = lib.mkIf (cfg.enable && web.enable) {
    systemd.sockets = units.perUser unit socketOf;
    systemd.services = units.perUser unit serviceOf;
  };
}
