# Configurations that the module must refuse, each with a word of the remedy that it must
# name, and some that it must accept; and that every refusal of the module is among them.
# Evaluates to the list of what went wrong: empty is good.
#
#   nix-instantiate --eval --strict --json nixos-tests/assertions --argstr nixpkgs PATH
{
  nixpkgs ? <nixpkgs>,
  lib ? import (nixpkgs + "/lib"),
  pkgs ? import nixpkgs { },
}:
let
  inherit (import ../module.nix { inherit lib pkgs; }) evaluate;

  # What the module makes of `box`, beside other settings of the machine.
  evaluated =
    more: box:
    (evaluate [
      more
      {
        services.agent-box = {
          enable = true;
        }
        // box;
      }
    ]).config;

  messagesIn =
    more: box:
    map (check: check.message) (lib.filter (check: !check.assertion) (evaluated more box).assertions);

  concerns = map (file: import file { inherit lib pkgs; }) [
    ./users.nix
    ./sudo.nix
    ./web.nix
  ];
  cases = kind: lib.mergeAttrsList (map (concern: concern.${kind} or { }) concerns);

  refusals = lib.mapAttrs (_: case: messagesIn (case.surroundings or { }) case.box) (cases "refused");

  judgeRefused =
    name: case:
    lib.optional (
      !lib.any (lib.hasInfix case.remedy) refusals.${name}
    ) "${name}: expected a refusal with `${case.remedy}`, got ${builtins.toJSON refusals.${name}}";

  judgeWarned =
    name: case:
    let
      inherit (evaluated (case.surroundings or { }) case.box) warnings;
    in
    lib.optional (
      !lib.any (lib.hasInfix case.remedy) warnings
    ) "${name}: expected a warning with `${case.remedy}`, got ${builtins.toJSON warnings}";

  judgeAccepted =
    name: box:
    let
      messages = messagesIn { } box ++ (evaluated { } box).warnings;
    in
    lib.optional (messages != [ ]) "${name}: met ${builtins.toJSON messages}";

  # The messages that the module's files hold, each as the parts between what it fills in.
  sources = lib.filter (lib.hasSuffix ".nix") (
    map toString (lib.filesystem.listFilesRecursive ../../modules)
  );
  heldIn =
    file:
    map partsOf (
      lib.filter (lib.hasInfix "message = \"") (lib.splitString "\n" (builtins.readFile file))
    );
  partsOf =
    line:
    map (lib.replaceStrings [ "\\\"" "\\\\" ] [ "\"" "\\" ]) (
      lib.filter (part: lib.isString part && part != "") (
        builtins.split "[$][{][^}]*[}]" (
          lib.removeSuffix "\";" (lib.last (lib.splitString "message = \"" line))
        )
      )
    );

  said = lib.concatLists (lib.attrValues refusals);
  isSaid = parts: lib.any (message: lib.all (part: lib.hasInfix part message) parts) said;
  held = lib.concatMap heldIn sources;
  unheard = map (parts: "no case is refused with: ${lib.concatStringsSep "…" parts}") (
    lib.filter (parts: !isSaid parts) held
  );
in
lib.concatLists (lib.mapAttrsToList judgeRefused (cases "refused"))
++ lib.concatLists (lib.mapAttrsToList judgeWarned (cases "warned"))
++ lib.concatLists (lib.mapAttrsToList judgeAccepted (cases "accepted"))
++ unheard
++ lib.optional (
  lib.length held < 20
) "only ${toString (lib.length held)} messages found in modules/"
++ import ./openings.nix { inherit lib evaluated; }
++ import ./slices.nix { inherit lib evaluated; }
++ import ./metadata.nix { inherit lib evaluated; }
++ import ./names.nix { inherit lib evaluated messagesIn; }
