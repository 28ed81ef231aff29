# How units and the certificate are, for the settings pages: services of users have the
# confinement of sessions, and so no way to the system bus.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.agent-box;
  hardening = import ./hardening { inherit lib; };
in
{
  config = lib.mkIf (cfg.enable && cfg.web.enable) {
    # An account that is there: a bus asks for the groups of who connects.
    users.users.agent-box-status = {
      isSystemUser = true;
      group = "agent-box-status";
      description = "State of agent-box, for its users";
    };
    users.groups.agent-box-status = { };

    systemd.sockets.agent-box-status = {
      description = "State of the box, for its users";
      wantedBy = [ "sockets.target" ];
      listenStreams = [ "/run/agent-box-status.sock" ];
      socketConfig = {
        # Whoever it is: the service asks the kernel, and knows the users of the box.
        SocketMode = "0666";
        FileDescriptorName = "status";
        TriggerLimitIntervalSec = 0;
      };
    };

    systemd.services.agent-box-status = {
      description = "State of the box, for its users";
      requires = [ "agent-box-status.socket" ];
      after = [ "agent-box-status.socket" ];
      path = [ pkgs.systemd ];
      unitConfig.StartLimitIntervalSec = 0;
      stopIfChanged = false;
      environment.SSL_CERT_FILE = "/etc/ssl/certs/ca-certificates.crt";
      serviceConfig = hardening.status // {
        Type = "exec";
        User = "agent-box-status";
        Group = "agent-box-status";
        ExecStart = "${cfg.runtime}/bin/agent-box-status";
        Restart = "on-failure";
        RestartSec = "200ms";
        RestartSteps = 10;
        RestartMaxDelaySec = "5s";
        MemoryMax = "128M";
        TasksMax = 32;
      };
    };
  };
}
