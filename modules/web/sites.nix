# Sites of users, each under a host name of its own. A user declares them as data and
# hands that over; a helper of root judges every entry and writes what the edge imports.
# A folder is served by a service of the user, a port is dialled by one, so that neither
# root nor the edge touches a path or an address that users have a say in.
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

  files = "agent-box-site-files";

  helper = "agent-box-sites";

  port = "agent-box-site-port";

  # Where a user hands over the list of sites. Who it comes from is known by the socket.
  listOf = name: {
    description = "List of sites of ${name}, for the helper";
    wantedBy = [ "sockets.target" ];
    listenStreams = [ "/run/agent-box-site-lists/${name}.sock" ];
    socketConfig = {
      SocketUser = name;
      SocketMode = "0600";
      FileDescriptorName = name;
      Service = "${helper}.service";
      # Whoever knocks without end must not close it.
      TriggerLimitIntervalSec = 0;
    };
  };

  # One for each port in use, `@PORT`: the helper starts and stops them.
  portSocketOf = name: {
    description = "Port %i of ${name}, for the edge";
    listenStreams = [ "/run/${port}/${name}/%i.sock" ];
    socketConfig = {
      SocketGroup = "caddy";
      SocketMode = "0660";
      RemoveOnStop = true;
      TriggerLimitIntervalSec = 0;
    };
  };

  portOf =
    name:
    let
      network = cfg.inUserNetwork name;
      path = network.serviceConfig.NetworkNamespacePath or null;
    in
    lib.mkMerge [
      network
      {
        description = "Port %i of ${name}, behind a site";
        unitConfig.StartLimitIntervalSec = 0;
        # An update must not end what goes through it. It ends when it is idle.
        restartIfChanged = false;
        serviceConfig = hardening.sitePort // cfg.besideSessions name // {
          Type = "exec";
          User = name;
          Group = name;
          # In a network of the user's own, every program is.
          ExecStart = "${cfg.runtime}/bin/${port} %i${
            lib.optionalString (path != null) " --network ${path}"
          }";
          SyslogIdentifier = port;
          LimitNOFILE = 4096;
          MemoryMax = "256M";
          TasksMax = 16;
        };
      }
    ];

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
      sockets =
        units.perUser files socketOf
        // units.perUser helper listOf
        // lib.mapAttrs' (unit: lib.nameValuePair "${unit}@") (units.perUser port portSocketOf);

      services = {
        ${helper} = {
          description = "Take up what users declare as sites";
          # What there is already is opened at the start.
          wantedBy = [ "multi-user.target" ];
          requires = map (name: "${helper}-${name}.socket") web.users;
          after = [ "caddy.service" ] ++ map (name: "${helper}-${name}.socket") web.users;
          path = [
            pkgs.caddy
            pkgs.systemd
          ];
          unitConfig.StartLimitIntervalSec = 0;
          serviceConfig = hardening.sites // {
            Type = "exec";
            ExecStart = "${cfg.runtime}/bin/${helper}";
            Restart = "on-failure";
            RestartSec = "1s";
            RestartSteps = 5;
            RestartMaxDelaySec = "30s";
            SyslogIdentifier = helper;
            StateDirectory = helper;
            StateDirectoryMode = "0755";
            RuntimeDirectory = helper;
            RuntimeDirectoryMode = "0755";
            RuntimeDirectoryPreserve = true;
            # Whatever users have it do, most of the machine is for something else.
            CPUQuota = "50%";
            CPUWeight = 20;
            MemoryMax = "512M";
            TasksMax = 64;
          };
        };
      }
      // units.perUser files filesOf
      // lib.mapAttrs' (unit: lib.nameValuePair "${unit}@") (units.perUser port portOf);
    };
  };
}
