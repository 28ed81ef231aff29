# Sites of users, each under a host name of its own. A user declares them as data; a
# helper of root judges every entry and writes what the edge imports. A folder is
# served by a service of the user, so that no other account reads a home.
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

  helper = {
    path = [ pkgs.caddy ];
    after = [ "caddy.service" ];
    # A user who keeps changing the file must not stop the helper for all.
    unitConfig.StartLimitIntervalSec = 0;
    serviceConfig = hardening.sites // {
      Type = "oneshot";
      ExecStart = "${cfg.runtime}/bin/agent-box-sites";
      SyslogIdentifier = "agent-box-sites";
      StateDirectory = "agent-box-sites";
      StateDirectoryMode = "0755";
      RuntimeDirectory = "agent-box-sites";
      RuntimeDirectoryMode = "0755";
      RuntimeDirectoryPreserve = true;
      TimeoutStartSec = "5min";
      MemoryMax = "512M";
      TasksMax = 64;
    };
  };

  units = import ./units.nix { inherit lib config; };

  files = "agent-box-site-files";

  declared = name: "/home/${name}/.config/agent-box/sites.json";

  socketOf =
    name:
    units.socket name "/run/${files}/${name}.sock"
    // {
      description = "Folders of sites of ${name}, for the edge";
    };

  filesOf =
    name:
    lib.foldl' lib.recursiveUpdate (units.service name (hardening.siteFiles name)) [
      (units.onDemand files name)
      {
        description = "Folders of sites of ${name}";
        serviceConfig = {
          ExecStart = "${cfg.runtime}/bin/agent-box-site-files";
          MemoryMax = "256M";
          TasksMax = 64;
        };
      }
    ];
in
{
  config = lib.mkIf (cfg.enable && web.enable) {
    services.agent-box.tmpfiles = map (
      name: "d /home/${name}/sites :0755 :${name} :${name} -"
    ) web.users;

    systemd = {
      paths.agent-box-sites = {
        description = "Lists of sites";
        wantedBy = [ "multi-user.target" ];
        pathConfig = {
          PathChanged = map declared web.users;
          TriggerLimitIntervalSec = 0;
        };
      };

      sockets = units.perUser files socketOf;

      services = {
        agent-box-sites = lib.recursiveUpdate helper {
          description = "Take up what users declare as sites";
          wantedBy = [ "multi-user.target" ];
          # Nothing to do where nobody ever declared one.
          unitConfig.ConditionPathExists = map (path: "|${path}") (
            [ "/var/lib/agent-box-sites/sites.caddy" ] ++ map declared web.users
          );
        };
        # Somebody else may listen on a port by now, and a change may have slipped by
        # while the helper was at work.
        agent-box-sites-check = lib.recursiveUpdate helper {
          description = "Look at the ports of sites again";
          # Nothing to do on a box without sites.
          unitConfig.ConditionPathExists = "/run/agent-box-sites/any";
        };
      }
      // units.perUser files filesOf;

      timers.agent-box-sites-check = {
        description = "Look at the ports of sites again";
        wantedBy = [ "timers.target" ];
        timerConfig = {
          OnActiveSec = "1min";
          OnUnitInactiveSec = "1min";
        };
      };
    };
  };
}
