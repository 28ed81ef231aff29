# Terminals in the browser: one ttyd per user, on a socket that only the edge and
# the user reach, in the same kind of sandbox as the sessions. A tmux client can
# be told to run programs, so it must not be able to do more than a pane.
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

  directory = name: "/run/agent-box-terminal/${name}";

  arguments = name: [
    "--interface ${directory name}/ttyd.sock"
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
        ReadWritePaths = [ (directory name) ];
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
in
{
  config = lib.mkIf (cfg.enable && web.enable) {
    # ttyd makes its socket itself; the group comes from the directory, since the
    # user is no member of it.
    services.agent-box.tmpfiles = [
      "d /run/agent-box-terminal 0711 root root -"
    ]
    ++ map (name: "d ${directory name} 2710 ${name} caddy -") web.users;

    systemd.services = lib.mkMerge [
      (units.perUser "agent-box-terminal" serviceOf)
      (units.perUser "agent-box-terminal" cfg.inUserNetwork)
    ];
  };
}
