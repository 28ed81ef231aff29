# Seed sessions: what the registry of a user holds on first boot, and only then.
{ config, lib, ... }:
let
  inherit (lib) mkOption types;
  cfg = config.services.agent-box;

  agentType = types.nullOr (types.enum (lib.attrNames cfg.agentCatalogue ++ [ "shell" ]));

  # Options that a session has of its own and that a user without `sessions`
  # has for its session `main`.
  common = {
    skipPermissions = mkOption {
      type = types.bool;
      default = true;
      description = ''
        Start the agent with its autonomy flag. A headless agent with approval prompts that
        nobody answers is of no use; turn this off where a human watches.
      '';
    };
    remoteControl = mkOption {
      type = types.bool;
      default = true;
      description = ''
        Make the session drivable from the apps of its agent, where the agent can. A session of
        codex without a task then shows the pairing code of the app-server, which is one per
        user, in place of a prompt.
      '';
    };
    remoteControlName = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "alice-box";
      description = ''
        Name of the session in the apps of Claude. Null: `<user>-<session>@<host>` with the
        host of {option}`services.agent-box.remoteControlHost`. Other agents ignore it.
      '';
    };
    extraArgs = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [
        "--model"
        "opus"
      ];
      description = "Arguments appended to the command line of the agent.";
    };
  };

  sessionType = types.submodule {
    options = common // {
      agent = mkOption {
        type = agentType;
        default = null;
        example = "codex";
        description = ''
          Agent of the session. Null: {option}`services.agent-box.agent`. `shell` is the
          login shell of the user.
        '';
      };
      workingDirectory = mkOption {
        type = types.nullOr types.str;
        default = null;
        example = "/home/alice/project";
        description = "Folder that the session starts in. Null: the home of the user.";
      };
      initialPrompt = mkOption {
        type = types.nullOr types.str;
        default = null;
        example = "Read AGENTS.md and start with the first open task.";
        description = "Prompt that the agent gets once, when the session first starts.";
      };
      initialPromptFile = mkOption {
        type = types.nullOr types.str;
        default = null;
        example = "/run/secrets/alice-task";
        description = ''
          File outside the store that holds the initial prompt. Texts in the config are in the
          store, where every account of the machine can read them.
        '';
      };
      resumePrompt = mkOption {
        type = types.nullOr types.str;
        default = null;
        description = ''
          Prompt that the agent gets when the session is resumed after a crash or a reboot.
          Null: a short request to check the state of its work and to go on.
        '';
      };
    };
  };

  seedOf = user: session: {
    inherit (session)
      skipPermissions
      remoteControl
      remoteControlName
      extraArgs
      ;
    agent = if session.agent == null then cfg.agent else session.agent;
    workingDirectory =
      if session.workingDirectory == null then "/home/${user}" else session.workingDirectory;
    initialPrompt = session.initialPrompt or null;
    initialPromptFile = session.initialPromptFile or null;
    resumePrompt = session.resumePrompt or null;
  };

  # The file itself is root's: its content reaches the supervisor as a credential.
  documentOf = lib.mapAttrs (
    name: seed:
    removeAttrs seed [ "initialPromptFile" ]
    // lib.optionalAttrs (seed.initialPromptFile != null) { initialPromptCredential = "prompt-${name}"; }
  );

  promptFiles = lib.filterAttrs (_: file: file != null);
  credentialsOf =
    user:
    let
      files = promptFiles (lib.mapAttrs (_: seed: seed.initialPromptFile) user.seed);
    in
    lib.mkIf (files != { }) {
      serviceConfig = {
        LoadCredential = lib.mapAttrsToList (name: file: "prompt-${name}:${file}") files;
        # Where a file is missing, the sessions start all the same.
        SetCredential = map (name: "prompt-${name}:") (lib.attrNames files);
      };
    };

  isLegalName = name: builtins.match "[A-Za-z0-9][A-Za-z0-9_-]{0,149}" name != null;

  checksOf =
    user: name: seed:
    let
      where = "services.agent-box.users.${user}, session \"${name}\"";
    in
    [
      {
        assertion = isLegalName name;
        message = "${where}: not a legal session name. Use 1 to 150 of A-Z, a-z, 0-9, `_` and `-`, and start with a letter or a digit.";
      }
      {
        assertion = seed.agent == "shell" || lib.elem seed.agent cfg.installAgents;
        message = "${where}: the agent `${seed.agent}` is not installed. Add it to services.agent-box.installAgents or choose another agent.";
      }
      {
        assertion =
          seed.remoteControlName == null || builtins.match "[^\r\n]+" seed.remoteControlName != null;
        message = "${where}: remoteControlName must be one line that is not empty. Write null for the derived name.";
      }
      {
        assertion = seed.initialPrompt == null || seed.initialPromptFile == null;
        message = "${where}: initialPrompt and initialPromptFile are both set. Keep one of them.";
      }
      {
        assertion =
          seed.initialPromptFile == null || builtins.match "/[^:[:space:]]+" seed.initialPromptFile != null;
        message = "${where}: initialPromptFile is no absolute path without spaces and colons. Write it out, for example \"/run/secrets/${user}-task\".";
      }
      {
        assertion = lib.hasPrefix "/" seed.workingDirectory;
        message = "${where}: workingDirectory is not an absolute path. Write it out, for example \"/home/${user}/project\".";
      }
    ];
in
{
  options.services.agent-box = {
    remoteControlHost = mkOption {
      type = types.str;
      default = config.networking.fqdnOrHostName;
      defaultText = lib.literalExpression "config.networking.fqdnOrHostName";
      example = "box.example.org";
      description = ''
        Host in the names that Claude's apps show for sessions. Empty: the domain of
        {option}`services.agent-box.web`, or without it the host name that the running kernel has.
      '';
    };

    users = mkOption {
      type = types.attrsOf (
        types.submodule (
          { config, name, ... }:
          {
            options = common // {
              agent = mkOption {
                type = agentType;
                default = null;
                example = "codex";
                description = ''
                  Agent of the session `main` of a user without
                  {option}`services.agent-box.users.<name>.sessions`. Null:
                  {option}`services.agent-box.agent`.
                '';
              };
              workingDirectory = mkOption {
                type = types.str;
                default = "/home/${name}";
                defaultText = lib.literalExpression ''"/home/<name>"'';
                description = "Folder that the session `main` of a user without `sessions` starts in.";
              };
              sessions = mkOption {
                type = types.attrsOf sessionType;
                default = { };
                example = lib.literalExpression ''
                  {
                    main = { };
                    review.agent = "codex";
                  }
                '';
                description = ''
                  Sessions that exist after the first boot. Later the registry
                  ({file}`~/.config/agent-box/sessions.json`) is what counts, and a rebuild
                  never touches it. Empty: one session `main`, made from the options of the
                  user itself.
                '';
              };
              seed = mkOption {
                type = types.attrsOf types.raw;
                internal = true;
                readOnly = true;
                description = "Seed sessions with every default resolved.";
              };
            };
            config.seed = lib.mapAttrs (_: seedOf name) (
              if config.sessions == { } then { main = config; } else config.sessions
            );
          }
        )
      );
    };
  };

  config = lib.mkIf cfg.enable {
    # One document each: prompts are nobody else's business.
    environment.etc = lib.mapAttrs' (
      name: user:
      lib.nameValuePair "agent-box/seeds/${name}.json" {
        text = builtins.toJSON (documentOf user.seed);
        mode = "0400";
        user = name;
        group = name;
      }
    ) cfg.users;

    systemd.services = lib.mapAttrs' (
      name: user: lib.nameValuePair "agent-box-supervisor-${name}" (credentialsOf user)
    ) cfg.users;

    assertions = [
      {
        assertion = builtins.match "[^[:space:]]*" cfg.remoteControlHost != null;
        message = "services.agent-box.remoteControlHost: \"${cfg.remoteControlHost}\" is no host name. Write one without spaces, or \"\" for that of the machine.";
      }
    ]
    ++ lib.concatLists (
      lib.concatLists (
        lib.mapAttrsToList (user: options: lib.mapAttrsToList (checksOf user) options.seed) cfg.users
      )
    );
  };
}
