# box.json: the one document that every program of the runtime reads. The
# module's knowledge goes there and hardly any into the environment of units.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.agent-box;

  # The store path and not /run/current-system, which moves under a running box.
  shellOf =
    name:
    let
      inherit (config.users.users.${name}) shell;
    in
    if lib.isDerivation shell then
      "${shell}${shell.shellPath or "/bin/${shell.meta.mainProgram}"}"
    else
      toString shell;

  agentOf =
    name: command:
    {
      inherit command;
    }
    // lib.optionalAttrs (name == "codex") {
      fullAccess = cfg.codexFullAccess;
      remoteControl = "${cfg.runtime}/bin/agent-box-codex";
    };

  userOf = name: user: {
    home = "/home/${name}";
    shell = shellOf name;
    runtimeDirectory = "/run/agent-box-${name}";
    # Those of the whole user are in its unit.
    limits = user.effectiveLimits.session;
    slice = cfg.userSlice name;
    inherit (user.effectiveLimits.user) diskMax;
    network = (cfg.inUserNetwork name).serviceConfig.NetworkNamespacePath or null;
  };
in
{
  options.services.agent-box.runtime = lib.mkOption {
    type = lib.types.package;
    default = pkgs.callPackage ../pkgs/agent-box/package.nix { };
    defaultText = lib.literalExpression "pkgs.callPackage ./pkgs/agent-box/package.nix { }";
    internal = true;
    description = "The Python runtime: supervisor, launcher and command line.";
  };

  options.services.agent-box.hostLabel = lib.mkOption {
    type = lib.types.str;
    internal = true;
    readOnly = true;
    description = "How the apps of the agents call this machine; empty for the name of the kernel.";
  };

  config = lib.mkIf cfg.enable {
    services.agent-box.hostLabel =
      if cfg.remoteControlHost == "" && cfg.web.enable then cfg.web.domain else cfg.remoteControlHost;

    environment.etc."agent-box/box.json".text = builtins.toJSON {
      version = 1;
      box = {
        revision = config.system.configurationRevision;
        inherit (cfg) hostLabel;
      };
      defaultAgent = cfg.agent;
      programs = {
        tmux = "${pkgs.tmux}/bin/tmux";
        launch = "${cfg.runtime}/bin/agent-box-launch";
      };
      agents = lib.mapAttrs agentOf cfg.agentPrograms;
      users = lib.mapAttrs userOf cfg.users;
      web = cfg.web.document;
      update = cfg.selfUpdate.document;
      cloud =
        if cfg.spotInterruption.enable then
          {
            inherit (cfg.spotInterruption)
              provider
              gracePeriod
              pollInterval
              message
              ;
          }
        else
          null;
      webhook = cfg.webhookDocument;
      network =
        if lib.any (user: user.networkPrivate) (lib.attrValues cfg.users) then
          {
            inherit (cfg.network) addresses addresses6 metadataGroup;
            metadataUsers = lib.attrNames (lib.filterAttrs (_: user: user.metadataAllowed) cfg.users);
          }
        else
          null;
    };

    environment.etc."agent-box/tmux.conf".text = builtins.readFile ./tmux.conf;
  };
}
