# The gate: asked by the edge about every request, keeps passwords and logins.
# Only the edge reaches its sockets, and only root the one for administration.
{
  config,
  lib,
  ...
}:
let
  cfg = config.services.agent-box;
  inherit (cfg) web;
  hardening = import ../hardening { inherit lib; };

  directory = "/run/agent-box-gate";

  # A service that fails must not take its socket with it for good.
  always.TriggerLimitIntervalSec = 0;

  sockets = [
    "agent-box-gate.socket"
    "agent-box-gate-known.socket"
    "agent-box-gate-admin.socket"
  ];

  hashFiles = lib.filterAttrs (_: file: file != null) (
    lib.genAttrs web.users (name: cfg.users.${name}.web.passwordHashFile)
  );
in
{
  config = lib.mkIf (cfg.enable && web.enable) {
    users.users.agent-box-gate = {
      isSystemUser = true;
      group = "agent-box-gate";
      description = "Login service of agent-box";
    };
    users.groups.agent-box-gate = { };

    # Not a RuntimeDirectory, which would take the sockets in it from the edge and
    # from root; and the files of the logins outlive a restart.
    services.agent-box.tmpfiles = [ "d ${directory} 0711 agent-box-gate agent-box-gate -" ];

    systemd = {
      sockets.agent-box-gate = {
        description = "Login service of the box, for the edge: about strangers";
        wantedBy = [ "sockets.target" ];
        listenStreams = [ "${directory}/gate.sock" ];
        socketConfig = always // {
          SocketUser = "agent-box-gate";
          SocketGroup = "caddy";
          SocketMode = "0660";
          FileDescriptorName = "gate";
        };
      };

      # The same for those whom it knows, so that they wait for no stranger.
      sockets.agent-box-gate-known = {
        description = "Login service of the box, for the edge: about who is signed in";
        wantedBy = [ "sockets.target" ];
        listenStreams = [ "${directory}/known.sock" ];
        socketConfig = always // {
          SocketUser = "agent-box-gate";
          SocketGroup = "caddy";
          SocketMode = "0660";
          FileDescriptorName = "known";
          Service = "agent-box-gate.service";
        };
      };

      sockets.agent-box-gate-admin = {
        description = "Login service of the box, for root";
        wantedBy = [ "sockets.target" ];
        listenStreams = [ "${directory}/admin.sock" ];
        socketConfig = always // {
          SocketMode = "0600";
          FileDescriptorName = "admin";
          Service = "agent-box-gate.service";
        };
      };

      services.agent-box-gate = {
        description = "Login service of the box";
        # From the start, since a box without any password prints a set-up code.
        wantedBy = [ "multi-user.target" ];
        requires = sockets;
        after = sockets;
        unitConfig.StartLimitIntervalSec = 0;
        stopIfChanged = false;
        serviceConfig = hardening.gate // {
          Type = "exec";
          User = "agent-box-gate";
          Group = "agent-box-gate";
          ExecStart = "${cfg.runtime}/bin/agent-box-gate-service";
          Restart = "always";
          RestartSec = "100ms";
          RestartSteps = 10;
          RestartMaxDelaySec = "2s";
          SyslogIdentifier = "agent-box-gate";
          # The set-up code goes there, the log does not.
          StandardOutput = "journal+console";
          StandardError = "journal";
          LoadCredential = lib.mapAttrsToList (name: file: "password-${name}:${file}") hashFiles;
          # Where one user's file is missing, the others get in all the same.
          SetCredential = map (name: "password-${name}:missing") (lib.attrNames hashFiles);
          StateDirectory = "agent-box-gate";
          StateDirectoryMode = "0700";
          ReadWritePaths = [
            directory
            "-/run/agent-box-bans/wishes"
          ];
          # More than passwords that it can judge in that time, each of which may be a line
          # that bans are made of.
          LogRateLimitIntervalSec = "30s";
          LogRateLimitBurst = 3000;
          LimitNOFILE = 16384;
          MemoryMax = "256M";
          TasksMax = 64;
        };
      };
    };
  };
}
