# Names and defaults that configs of boxes rely on. To change one of them breaks boxes, or
# opens what was closed, so each is written down a second time here. Evaluates to the list of
# what differs: empty is good.
#
#   nix-instantiate --eval --strict --json nixos-tests/contract.nix --argstr nixpkgs PATH
{
  nixpkgs ? <nixpkgs>,
  lib ? import (nixpkgs + "/lib"),
  pkgs ? import nixpkgs { },
}:
let
  inherit (import ./module.nix { inherit lib pkgs; }) evaluate;

  pin = lib.importJSON ../pkgs/local-channels/pin.json;

  defaults = {
    enable = false;
    agent = "claude";
    package = null;
    # All that are supported.
    installAgents = [
      "claude"
      "codex"
      "opencode"
      "pi"
    ];
    codexFullAccess = true;
    # Of the machine in module.nix: `networking.fqdnOrHostName`.
    remoteControlHost = "box";
    sudoAllowlist = [ ];
    extraPackages = [ ];
    environmentFiles = [ ];
    protectMemory = true;

    "users.alice.sessions" = { };
    "users.alice.agent" = null;
    "users.alice.skipPermissions" = true;
    "users.alice.remoteControl" = true;
    "users.alice.remoteControlName" = null;
    "users.alice.workingDirectory" = "/home/alice";
    "users.alice.extraGroups" = [ ];
    "users.alice.extraArgs" = [ ];
    "users.alice.environmentFiles" = [ ];
    "users.alice.environment" = { };
    "users.alice.agentsMd" = "";
    "users.alice.web.passwordHashFile" = null;

    "users.bob.sessions.main.agent" = null;
    "users.bob.sessions.main.skipPermissions" = true;
    "users.bob.sessions.main.remoteControl" = true;
    "users.bob.sessions.main.remoteControlName" = null;
    "users.bob.sessions.main.workingDirectory" = null;
    "users.bob.sessions.main.extraArgs" = [ ];
    "users.bob.sessions.main.initialPrompt" = null;
    "users.bob.sessions.main.resumePrompt" = null;

    "web.enable" = false;
    # Where there is a user of that name.
    "web.user" = "agent";
    "web.fail2ban" = true;

    "selfUpdate.enable" = false;

    "webhook.enable" = true;
    "webhook.repo" = "${pin.owner}/${pin.repo}";
    "webhook.rev" = pin.rev;
    "webhook.sha256" = pin.hash;
    "webhook.hookSessionArgs" = [ ];
    # No policy of anybody's: they name accounts.
    "webhook.watchPolicy" = { };
    # Of a topic that has a policy.
    "webhook.watchPolicy.topic.when" = null;
    "webhook.watchPolicy.topic.drop" = null;
    "webhook.watchPolicy.topic.ignoreSenders" = [ ];
    "webhook.watchPolicy.topic.note" = null;

    "spotInterruption.enable" = true;
    "spotInterruption.gracePeriod" = 75;
    "spotInterruption.pollInterval" = 5;
    # Null: a sentence about what will happen.
    "spotInterruption.message" = null;
  };

  # Gone, each with what to do instead.
  removed = {
    "selfUpdate.repo" = "flake.lock";
    "selfUpdate.rev" = "flake.lock";
    "selfUpdate.pinFile" = "flake.lock";
    "selfUpdate.agentNixpkgs" = "flake.lock";
    "selfUpdate.agentPinFile" = "flake.lock";
    "webhook.syncSessionPlugin" = "claudePlugin";
  };

  of = box: (evaluate [ { services.agent-box = box; } ]).config;

  users = {
    agent = { };
    alice = { };
    bob.sessions.main = { };
  };
  plain = (of { inherit users; }).services.agent-box;
  watched = (of { webhook.watchPolicy.topic = { }; }).services.agent-box;

  pathOf = lib.splitString ".";

  judgeDefault =
    name: default:
    let
      box = if lib.hasPrefix "webhook.watchPolicy.topic" name then watched else plain;
      found = lib.attrByPath (pathOf name) "<no such option>" box;
    in
    lib.optional (
      found != default
    ) "${name}: ${builtins.toJSON found} in place of ${builtins.toJSON default}";

  judgeRemoved =
    name: remedy:
    let
      messages = map (check: check.message) (
        lib.filter (check: !check.assertion)
          (of (
            lib.recursiveUpdate {
              enable = true;
              inherit users;
            } (lib.setAttrByPath (pathOf name) true)
          )).assertions
      );
    in
    lib.optional (
      !lib.any (message: lib.hasInfix name message && lib.hasInfix remedy message) messages
    ) "${name}: nobody is told of ${remedy}";

  # A box in the browser has a name that somebody chose.
  domain = (evaluate [ ]).options.services.agent-box.web.domain;
in
lib.concatLists (lib.mapAttrsToList judgeDefault defaults)
++ lib.concatLists (lib.mapAttrsToList judgeRemoved removed)
++ lib.optional (domain ? default) "web.domain: has a default"
