# Webhooks: one receiver per user in the browser. It is closed until the user gives a
# sender a secret; from then on the signature of each delivery is the trust boundary.
# Until then there is no process either: the first request starts it, and so does the
# supervisor of a user who has set up a sender.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.services.agent-box;
  inherit (cfg) web webhook;
  hardening = import ./hardening { inherit lib; };
  units = import ./web/units.nix { inherit lib config; };
  pin = lib.importJSON ../pkgs/local-channels/pin.json;

  unit = "agent-box-webhook";
  active = cfg.enable && web.enable && webhook.enable;

  # The same path for every version: Claude remembers where it found a plugin.
  pluginPath = "/run/agent-box-local-channels";
  withPlugin = webhook.claudePlugin && lib.elem "claude" cfg.installAgents;

  plugin = pkgs.callPackage ../pkgs/local-channels/package.nix {
    pin = {
      owner = lib.head (lib.splitString "/" webhook.repo);
      repo = lib.last (lib.splitString "/" webhook.repo);
      inherit (webhook) rev;
      hash = webhook.sha256;
    };
  };

  socketPath = name: "/run/${unit}/${name}.sock";

  document = {
    users = lib.genAttrs web.users (name: {
      url = "${web.address}/${name}/webhook";
      socket = socketPath name;
    });
    sessionMax = webhook.hookSessionMax;
    sessionArgs = webhook.hookSessionArgs;
    sessionAgent = webhook.hookSessionAgent;
    sessionHours = webhook.hookSessionHours;
    inherit (webhook) watchPolicy;
    plugin = if withPlugin then pluginPath else null;
  };

  socketOf =
    name:
    lib.recursiveUpdate (units.socket name (socketPath name)) {
      description = "Webhooks of ${name}, for the edge";
      socketConfig = {
        FileDescriptorName = "webhook";
        Backlog = 1024;
      };
    };

  serviceOf =
    name:
    lib.foldl' lib.recursiveUpdate (units.service name (hardening.webhook name)) [
      (units.onDemand unit name)
      {
        description = "Webhooks of ${name}";
        restartTriggers = [ (builtins.toJSON document) ];
        environment = {
          HOME = "/home/${name}";
          LANG = "C.UTF-8";
        };
        serviceConfig = {
          Type = "notify";
          NotifyAccess = "main";
          ExecStart = "${cfg.runtime}/bin/agent-box-webhook-service";
          WatchdogSec = 60;
          WatchdogSignal = "SIGKILL";
          MemoryMax = "512M";
          TasksMax = 64;
          LogRateLimitIntervalSec = "30s";
          LogRateLimitBurst = 300;
        };
      }
    ];
in
{
  imports = [
    (lib.mkRemovedOptionModule [ "services" "agent-box" "webhook" "syncSessionPlugin" ] ''
      Claude sessions always have the pinned plugin. Without it: services.agent-box.webhook.claudePlugin.
    '')
  ];

  options.services.agent-box.webhook = {
    enable = mkOption {
      type = types.bool;
      default = true;
      description = ''
        Receive webhooks for every user with a workspace, at `https://<domain>/<user>/webhook`,
        and tell that user's sessions. Nobody signs in there: the signature of each delivery is
        the trust boundary. Closed until the user runs `agent-box-webhook setup`. Does nothing
        without {option}`services.agent-box.web.enable`.
      '';
    };

    repo = mkOption {
      type = types.strMatching "[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+";
      default = "${pin.owner}/${pin.repo}";
      defaultText = lib.literalMD "the pinned one";
      example = "example/local-channels";
      description = "Repository on GitHub of the plugin through which Claude sessions are told.";
    };

    rev = mkOption {
      type = types.str;
      default = pin.rev;
      defaultText = lib.literalMD "the pinned one";
      description = "Commit of {option}`repo`.";
    };

    sha256 = mkOption {
      type = types.str;
      default = pin.hash;
      defaultText = lib.literalMD "the pinned one";
      description = "Hash of {option}`rev`, as Nix prints it when it is wrong.";
    };

    claudePlugin = mkOption {
      type = types.bool;
      default = true;
      description = ''
        Tell Claude sessions through the plugin. It takes an account whose channels are
        available. Off: they are told by their terminal, like the sessions of other agents.
      '';
    };

    hookSessionMax = mkOption {
      type = types.ints.positive;
      default = 4;
      description = ''
        Sessions that standing watches may have at once, per user. Beyond that events wait. A
        user may set another number: `agent-box-session env set AGENT_BOX_HOOK_SESSION_MAX`.
      '';
    };

    hookSessionArgs = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [
        "--model"
        "sonnet"
      ];
      description = ''
        Arguments of the agent in sessions of standing watches. A user may set others, as a JSON
        list: `agent-box-session env set AGENT_BOX_HOOK_SESSION_ARGS`.
      '';
    };

    hookSessionAgent = mkOption {
      type = types.nullOr (types.enum (lib.attrNames cfg.agentCatalogue));
      default = null;
      description = "Agent in sessions of standing watches. Null: {option}`services.agent-box.agent`.";
    };

    hookSessionHours = mkOption {
      type = types.ints.unsigned;
      default = 24;
      description = ''
        Hours after which a session of a standing watch is removed that did not remove itself,
        unless somebody is looking at it. 0: never.
      '';
    };

    watchPolicy = mkOption {
      type = types.attrsOf (
        types.submodule {
          options = {
            when = mkOption {
              type = types.nullOr types.raw;
              default = null;
              description = "Rule that an event must satisfy. Null: none.";
            };
            drop = mkOption {
              type = types.nullOr types.raw;
              default = null;
              description = "Rule that an event must not satisfy. Null: none.";
            };
            ignoreSenders = mkOption {
              type = types.listOf types.str;
              default = [ ];
              description = "Senders whose events are left out; `@self` is the box itself.";
            };
            note = mkOption {
              type = types.nullOr types.str;
              default = null;
              description = "Note of the watch. Null: the one that it was made with.";
            };
          };
        }
      );
      default = { };
      example = lib.literalExpression ''
        {
          "github:example/*" = {
            when = { path = "action"; "in" = [ "opened" "reopened" ]; };
            ignoreSenders = [ "@self" ];
          };
        }
      '';
      description = ''
        Rules of standing watches by topic. They replace those of the watch itself, so that who
        may change the watch cannot widen it. They make no watch.
      '';
    };
  };

  options.services.agent-box.webhookDocument = mkOption {
    type = types.raw;
    internal = true;
    readOnly = true;
    description = "The part of box.json about webhooks.";
  };

  config = lib.mkMerge [
    { services.agent-box.webhookDocument = if active then document else null; }

    (lib.mkIf active {
      assertions = [
        {
          assertion = webhook.hookSessionAgent == null || lib.elem webhook.hookSessionAgent cfg.installAgents;
          message = "services.agent-box.webhook.hookSessionAgent: ${toString webhook.hookSessionAgent} is not installed. Add it to services.agent-box.installAgents or choose another agent.";
        }
      ];

      systemd.sockets = units.perUser unit socketOf;
      systemd.services = units.perUser unit serviceOf;

      services.agent-box.tmpfiles = lib.optional withPlugin "L+ ${pluginPath} - - - - ${plugin}";

      # Claude takes messages from plugins that are on a list only, and this one is not on
      # its own list.
      environment.etc."claude-code/managed-settings.json" = lib.mkIf withPlugin {
        text = lib.mkDefault (
          builtins.toJSON {
            channelsEnabled = true;
            allowedChannelPlugins = [
              {
                marketplace = "local-channels";
                plugin = "local-webhook";
              }
            ]
            ++
              map
                (name: {
                  marketplace = "claude-plugins-official";
                  plugin = name;
                })
                [
                  "telegram"
                  "discord"
                  "imessage"
                  "fakechat"
                ];
          }
        );
      };
    })
  ];
}
