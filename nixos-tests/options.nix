# Every public option of the module as data, for docs/options.md. Evaluates only:
#
#   nix-instantiate --eval --strict --json nixos-tests/options.nix --argstr nixpkgs PATH
{
  nixpkgs ? <nixpkgs>,
  lib ? import (nixpkgs + "/lib"),
  system ? "x86_64-linux",
  # An instance of nixpkgs; nothing in it is built or even evaluated.
  pkgs ? import nixpkgs { inherit system; },
}:
let
  inherit (import ./module.nix { inherit lib pkgs; }) evaluate;

  prefix = "services.agent-box.";

  public = lib.filter (
    option: option.visible && !option.internal && lib.hasPrefix prefix option.name
  );

  textOf =
    value:
    if !(value ? _type) then
      value
    else if value._type == "literalMD" || value._type == "mdDoc" then
      value.text
    else
      "`${value.text}`";
in
map (option: {
  name = lib.removePrefix prefix option.name;
  inherit (option) description type readOnly;
  default = if option ? default then textOf option.default else null;
  example = if option ? example then textOf option.example else null;
}) (public (lib.optionAttrSetToDocList (evaluate [ ]).options))
