# What the README tells people to type and to write: outputs that there are, and settings that
# the module takes. Evaluates to the list of what went wrong: empty is good.
{
  lib,
  pkgs,
  self,
  readme ? builtins.readFile ../README.md,
}:
let
  inherit (import ./module.nix { inherit lib pkgs; }) evaluate;
  inherit (pkgs.stdenv.hostPlatform) system;

  # Everything in `text` that `pattern` matches, each as the list of its groups.
  matches = pattern: text: lib.filter lib.isList (builtins.split pattern text);

  # Beginning of a command -> the outputs that its `.#NAME` is one of.
  commands = {
    "nix build" = self.packages.${system};
    "nix run" = self.apps.${system};
    "nixos-rebuild build-vm --flake" = self.nixosConfigurations;
    "nix flake init --template github:OWNER/agent-box" = self.templates;
    "nix develop" = self.devShells.${system};
    "nix fmt" = {
      default = self.formatter.${system};
    };
    "nix flake check" = {
      default = self.checks.${system};
    };
  };

  judgeCommand =
    command: outputs:
    let
      named = lib.concatLists (matches "${command} ?[.]?#([a-z0-9-]+)" readme);
      # Without a name it is about the default one.
      names = named ++ lib.optional (matches "(${command})`" readme != [ ]) "default";
      missing = lib.subtractLists (lib.attrNames outputs) names;
    in
    lib.optional (names == [ ]) "the README does not say `${command}`"
    ++ map (name: "the README says `${command}` of ${name}, which there is not") missing;

  # A `.#NAME` of any other command would go unnoticed.
  mentioned = lib.length (matches "([.]#)[a-z]" readme);
  known = lib.length (
    lib.concatMap (command: matches "(${command}) [.]#" readme) (lib.attrNames commands)
  );

  blocks = map lib.head (map (lib.splitString "```") (lib.tail (lib.splitString "```nix\n" readme)));
  parsed = text: import (builtins.toFile "readme.nix" text);

  settings = lib.filter (lib.hasPrefix "services.agent-box") blocks;
  written = map (text: parsed "{ ${text} }") settings;

  # A whole flake, which says by itself which module it takes and what its box is like.
  flakes = lib.filter (lib.hasPrefix "{\n  inputs") blocks;
  machineOf =
    text:
    ((parsed text).outputs {
      nixpkgs.lib.nixosSystem = lib.id;
      agent-box.nixosModules.default = { };
    }).nixosConfigurations.host;
  machines = lib.concatMap (text: lib.filter lib.isAttrs (machineOf text).modules) flakes;

  # Of one box, as somebody reads them one after the other.
  box = evaluate (machines ++ written);
  refused = map (check: check.message) (lib.filter (check: !check.assertion) box.config.assertions);
in
lib.concatLists (lib.mapAttrsToList judgeCommand commands)
++
  lib.optional (mentioned != known)
    "the README names ${toString mentioned} outputs, ${toString known} by a command that is known here"
++ lib.optional (lib.length settings < 2) "the README has no settings any more"
++ lib.optional (lib.length flakes != 1) "the README shows no flake any more"
++ refused
