# Terminals in the browser: one ttyd per user, in the same kind of sandbox as the
# sessions. A tmux client can be told to run programs, so it must not be able to do
# more than a pane.
#
# ttyd makes its socket itself, in a directory of the user's, who can put anything in
# its place. So the edge dials a socket in root's directory, behind which a relay with
# the user's own rights goes to whatever is at that place.
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

  relay = "agent-box-relay";

  # For root alone to write in.
  directory = "/run/agent-box-terminal";

  private = name: "agent-box-ttyd/${name}";
  socketPath = name: "/run/${private name}/ttyd.sock";

  arguments = name: [
    "--interface ${socketPath name}"
    "--writable"
    # The edge passes the session and the login, and nothing that a client wrote.
    "--url-arg"
    "--check-origin"
    "--max-clients 256"
    # Browsers that vanish without a word are given up after two of these.
    "--ping-interval 10"
    # Errors and warnings; more would be a line for each connection.
    "--debug 3"
    "--terminal-type xterm-256color"
    "--client-option disableLeaveAlert=true"
    "--client-option disableResizeOverlay=true"
    "--client-option scrollback=0"
    # As dark as the workspace around it.
    "--client-option 'theme={\"background\":\"#161614\",\"foreground\":\"#dddbd4\"}'"
  ];

  units = import ./units.nix { inherit lib config; };

  sandbox =
    name:
    hardening.sandbox {
      user = name;
      sudo = false;
      allowCloudMetadata = false;
    };

  serviceOf =
    name:
    lib.recursiveUpdate (units.service name (sandbox name)) {
      description = "Terminals of ${name} in the browser";
      wantedBy = [ "multi-user.target" ];
      after = [ "agent-box-${name}.service" ];
      environment = {
        HOME = "/home/${name}";
        TMUX_TMPDIR = "/run/agent-box-${name}";
        LANG = "C.UTF-8";
      };
      serviceConfig = {
        ExecStart = "${pkgs.ttyd}/bin/ttyd ${lib.concatStringsSep " " (arguments name)} ${cfg.runtime}/bin/agent-box-terminal";
        RuntimeDirectory = private name;
        RuntimeDirectoryMode = "0700";
        # It is a file system of its own, which no stop of the service can remove.
        RuntimeDirectoryPreserve = true;
        Restart = "always";
        RestartSec = "100ms";
        RestartSteps = 20;
        RestartMaxDelaySec = "2s";
        OOMPolicy = "continue";
        MemoryMax = "30%";
        TasksMax = 2048;
      }
      // lib.optionalAttrs cfg.protectMemory { OOMScoreAdjust = lib.mkDefault 500; };
    };
  relaySocketOf =
    name:
    lib.recursiveUpdate (units.socket "root" "${directory}/${name}.sock") {
      description = "Terminals of ${name} in the browser, for the edge";
      socketConfig.DirectoryMode = "0755";
    };

  # It is there while a terminal is open, and a little longer.
  relayOf =
    name:
    lib.foldl' lib.recursiveUpdate (units.service name (hardening.relay name)) [
      (units.onDemand relay name)
      {
        description = "Way from the edge to the terminals of ${name}";
        serviceConfig = {
          Type = "notify";
          ExecStart = "${pkgs.systemd}/lib/systemd/systemd-socket-proxyd --exit-idle-time=10min --connections-max=512 ${socketPath name}";
          # It has no business in any home.
          WorkingDirectory = "/";
          MemoryMax = "64M";
          TasksMax = 16;
        };
      }
    ];
in
{
  config = lib.mkIf (cfg.enable && web.enable) {
    services.agent-box.tmpfiles = [
      "d ${directory} 0755 root root -"
    ]
    # Directories of users, in which ttyd once had its socket.
    ++ map (name: "R ${directory}/${name} - - - - -") web.users;

    systemd.sockets = units.perUser relay relaySocketOf;
    systemd.services = lib.mkMerge [
      (units.perUser "agent-box-terminal" serviceOf)
      (units.perUser "agent-box-terminal" cfg.inUserNetwork)
      (units.perUser relay relayOf)
    ];
  };
}
