# The units of a user: the sandbox, which is a tmux server in the foreground with
# every pane below it, and the supervisor beside it. Restarting the supervisor,
# and upgrading the box, never touches a pane.
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
  agentUnit = import ./agent-unit.nix { inherit lib config; };

  # Comes back at once, and at most every two seconds if it cannot stay up.
  restart = {
    Restart = "always";
    RestartSec = "100ms";
    RestartSteps = 20;
    RestartMaxDelaySec = "2s";
  };

  # Variables that the module answers for. Other names would make a session
  # look for its server or its files in the wrong place.
  ownVariables = [
    "HOME"
    "LOGNAME"
    "PATH"
    "SHELL"
    "TMUX"
    "TMUX_TMPDIR"
    "USER"
  ];

  sandboxOf =
    name: user:
    lib.recursiveUpdate (agentUnit name user) {
      description = "Agent sessions of ${name}";
      wantedBy = [ "multi-user.target" ];
      wants = [
        "agent-box-supervisor-${name}.service"
        "network-online.target"
      ];
      after = [ "network-online.target" ];
      serviceConfig = restart // {
        # The supervisor stays when the server dies: it saw what ran and brings it back.
        RestartMode = "direct";
        ExecStart = "${pkgs.tmux}/bin/tmux -L agent-box -f /etc/agent-box/tmux.conf -D";
        RuntimeDirectory = "agent-box-${name}";
        KillMode = "control-group";
        # One group per session below, made by the supervisor.
        Delegate = "cpu memory pids";
        DelegateSubgroup = "server";
      };
    };

  supervisorOf = name: _: {
    description = "Supervisor of the agent sessions of ${name}";
    requires = [ "agent-box-${name}.service" ];
    after = [ "agent-box-${name}.service" ];
    unitConfig = {
      RequiresMountsFor = "/home/${name}";
      StartLimitIntervalSec = 0;
    };
    stopIfChanged = false;
    path = [ pkgs.tmux ];
    environment = {
      HOME = "/home/${name}";
      TMUX_TMPDIR = "/run/agent-box-${name}";
      LANG = "C.UTF-8";
    };
    serviceConfig =
      hardening.supervisor name
      // restart
      // cfg.besideSessions name
      // {
        Type = "notify";
        NotifyAccess = "main";
        User = name;
        Group = name;
        RuntimeDirectory = "agent-box-${name}";
        RuntimeDirectoryMode = "0700";
        RuntimeDirectoryPreserve = true;
        ExecStart = "${cfg.runtime}/bin/agent-box-supervisor";
        WorkingDirectory = "~";
        # A hung supervisor may also hang in its handler of a polite signal.
        WatchdogSec = 30;
        WatchdogSignal = "SIGKILL";
        LimitNOFILE = 65536;
      };
  };

  # systemd would refuse the whole unit.
  filesOf =
    where: files:
    map (file: {
      assertion = builtins.match "-?/[^[:space:]]+" file != null;
      message = "${where}.environmentFiles: \"${file}\" is no absolute path without spaces. Write it out, for example \"/run/secrets/agents.env\", with a `-` before it if it may be missing.";
    }) files;

  variablesOf =
    name: user:
    map (variable: {
      assertion = !lib.elem variable ownVariables;
      message = "services.agent-box.users.${name}.environment: ${variable} is set by the module. Use extraPackages for PATH, and another name for anything else.";
    }) (lib.attrNames user.environment);
in
{
  imports = [ ./tools.nix ];

  options.services.agent-box = {
    sessionEnvironment = mkOption {
      type = types.functionTo types.raw;
      internal = true;
      readOnly = true;
      description = "Environment of the sessions of a user, as a function of the user's name.";
    };

    environmentFiles = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [ "-/run/secrets/agents.env" ];
      description = ''
        Files with environment variables for the sessions of every user, kept outside the
        store, as from agenix or sops-nix. A leading `-` makes one optional. Read when the
        sandbox starts.
      '';
    };

    users = mkOption {
      type = types.attrsOf (
        types.submodule {
          options = {
            environmentFiles = mkOption {
              type = types.listOf types.str;
              default = [ ];
              example = [ "/run/secrets/alice.env" ];
              description = "Files with environment variables for this user, read after those of the box.";
            };
            environment = mkOption {
              type = types.attrsOf types.str;
              default = { };
              example = {
                EDITOR = "nano";
              };
              description = ''
                Environment variables of the sessions of this user. They are in the
                world-readable store: no secrets.
              '';
            };
          };
        }
      );
    };
  };

  config = lib.mkIf cfg.enable {
    services.agent-box.sessionEnvironment =
      name:
      {
        HOME = "/home/${name}";
        TMUX_TMPDIR = "/run/agent-box-${name}";
        LANG = lib.mkDefault "C.UTF-8";
        # Programs that were not built by Nix look in other places.
        SSL_CERT_FILE = lib.mkDefault "/etc/ssl/certs/ca-certificates.crt";
      }
      // removeAttrs cfg.users.${name}.environment ownVariables;

    assertions =
      filesOf "services.agent-box" cfg.environmentFiles
      ++ lib.concatLists (
        lib.mapAttrsToList (
          name: user:
          variablesOf name user ++ filesOf "services.agent-box.users.${name}" user.environmentFiles
        ) cfg.users
      );

    # Emptied at boot, and of what is old; root's, as a /tmp is.
    services.agent-box.tmpfiles = [
      "d /var/lib/agent-box-tmp 0700 root root -"
    ]
    ++ lib.concatMap (name: [
      "d /var/lib/agent-box-tmp/${name} 0700 root root -"
      "D! /var/lib/agent-box-tmp/${name}/tmp 1777 root root 10d"
      "D! /var/lib/agent-box-tmp/${name}/var-tmp 1777 root root 30d"
    ]) (lib.attrNames cfg.users);

    systemd.services =
      lib.mapAttrs' (
        name: user:
        lib.nameValuePair "agent-box-${name}" (
          lib.mkMerge [
            (sandboxOf name user)
            (cfg.inUserNetwork name)
          ]
        )
      ) cfg.users
      // lib.mapAttrs' (
        name: user: lib.nameValuePair "agent-box-supervisor-${name}" (supervisorOf name user)
      ) cfg.users;
  };
}
