# What the units of a user in the browser have in common.
{ lib, config }:
let
  cfg = config.services.agent-box;
in
{
  # `make` for each user with a workspace, under the name of the unit.
  perUser =
    unit: make:
    lib.listToAttrs (map (name: lib.nameValuePair "${unit}-${name}" (make name)) cfg.web.users);

  # A socket that only the edge and the user reach; systemd has it before the service.
  socket = name: path: {
    wantedBy = [ "sockets.target" ];
    listenStreams = [ path ];
    socketConfig = {
      SocketUser = name;
      SocketGroup = "caddy";
      SocketMode = "0660";
      # A service that fails, or is made to, must not take its socket with it for good.
      TriggerLimitIntervalSec = 0;
    };
  };

  # A service that runs as the user and comes back whatever ends it. The next request
  # after an update starts the new version.
  service = name: settings: {
    unitConfig = {
      RequiresMountsFor = "/home/${name}";
      StartLimitIntervalSec = 0;
    };
    stopIfChanged = false;
    serviceConfig = settings // cfg.besideSessions name // {
      Type = "exec";
      User = name;
      Group = name;
      WorkingDirectory = "~";
      LimitNOFILE = 16384;
    };
  };

  # One that starts when the edge connects to its socket and ends when it is idle.
  onDemand = unit: name: {
    requires = [ "${unit}-${name}.socket" ];
    after = [ "${unit}-${name}.socket" ];
    serviceConfig = {
      Restart = "on-failure";
      RestartSec = "200ms";
      RestartSteps = 10;
      RestartMaxDelaySec = "5s";
    };
  };
}
