# The agent CLIs: which are installed, from which package, box-wide settings.
{
  config,
  lib,
  options,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.services.agent-box;

  catalogue = cfg.agentCatalogue;
  names = lib.attrNames catalogue;

  packageOption =
    name: agent:
    mkOption {
      type = types.package;
      default = cfg.agentPackages.${agent.package};
      defaultText = lib.literalExpression "config.services.agent-box.agentPackages.${agent.package}";
      description = "Package that provides `bin/${agent.program}` for the agent `${name}`.";
    };
in
{
  options.services.agent-box = {
    agent = mkOption {
      type = types.enum names;
      default = "claude";
      example = "codex";
      description = "Agent of every session that does not name one.";
    };

    installAgents = mkOption {
      type = types.listOf (types.enum names);
      default = names;
      example = [ "claude" ];
      description = ''
        Agent CLIs on the box. A session can be added at run time with any of them, without
        a rebuild. The pseudo-agent `shell` is always there.
      '';
    };

    agentPackages = mkOption {
      type = types.raw;
      default = pkgs;
      defaultText = lib.literalExpression "pkgs";
      description = ''
        Package set that the agent CLIs come from. The flake's module sets it to a newer
        channel than the host's, since agents move faster than a stable release.
      '';
    };

    packages = mkOption {
      type = types.submodule { options = lib.mapAttrs packageOption catalogue; };
      default = { };
      example = lib.literalExpression "{ codex = pkgs.codex.override { }; }";
      description = "Package of each agent CLI.";
    };

    package = mkOption {
      type = types.nullOr types.package;
      default = null;
      description = ''
        Former way to replace the package of the default agent; other agents keep theirs.
        Use {option}`services.agent-box.packages` instead.
      '';
    };

    codexFullAccess = mkOption {
      type = types.bool;
      default = true;
      description = ''
        Let codex work without approval prompts and without its own sandbox, box-wide, by
        {file}`/etc/codex/config.toml`: the box is the sandbox. That file is the system
        layer of codex, so {file}`~/.codex/config.toml` of a user still overrides it.
      '';
    };

    agentCatalogue = mkOption {
      type = types.attrsOf (
        types.submodule {
          options = {
            package = mkOption {
              type = types.str;
              internal = true;
              description = "Attribute of the package in {option}`services.agent-box.agentPackages`.";
            };
            program = mkOption {
              type = types.str;
              internal = true;
              description = "Name of the program in the package.";
            };
          };
        }
      );
      internal = true;
      description = "The agents that a box knows, each with its package and the program in it.";
    };

    agentPrograms = mkOption {
      type = types.attrsOf types.str;
      internal = true;
      readOnly = true;
      description = "Absolute path of the program of each installed agent.";
    };
  };

  config = lib.mkMerge [
    {
      services.agent-box.agentCatalogue = import ./catalogue.nix;

      # claude-code is the only unfree one. A host that brings its own instance of
      # nixpkgs decides there, and must not meet a definition here.
      nixpkgs.config = lib.mkIf (!options.nixpkgs.pkgs.isDefined) {
        allowUnfreePredicate = lib.mkDefault (
          package: lib.elem (lib.getName package) (lib.catAttrs "package" (lib.attrValues catalogue))
        );
      };
    }
    (lib.mkIf cfg.enable {
      assertions = [
        {
          assertion = cfg.installAgents != [ ];
          message = "services.agent-box.installAgents is empty: list at least one of ${lib.concatStringsSep ", " names}, or drop the line to install all.";
        }
        {
          assertion = lib.elem cfg.agent cfg.installAgents;
          message = "services.agent-box.agent is `${cfg.agent}`, which is not installed: add it to services.agent-box.installAgents or choose another default.";
        }
      ];

      warnings =
        lib.optional (cfg.package != null)
          "services.agent-box.package replaces the package of the default agent only; write services.agent-box.packages.${cfg.agent} instead.";

      services.agent-box.packages = lib.mkIf (cfg.package != null) {
        ${cfg.agent} = lib.mkDefault cfg.package;
      };

      services.agent-box.agentPrograms = lib.genAttrs cfg.installAgents (
        name: "${lib.getBin cfg.packages.${name}}/bin/${catalogue.${name}.program}"
      );

      # A file and not a flag: it also reaches the app-server that codex starts
      # with a fixed command line. Both keys are needed.
      environment.etc."codex/config.toml" =
        lib.mkIf (cfg.codexFullAccess && lib.elem "codex" cfg.installAgents)
          {
            text = ''
              approval_policy = "never"
              sandbox_mode = "danger-full-access"
            '';
          };
    })
  ];
}
