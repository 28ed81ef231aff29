# One host as data: the text of each unit and /etc file that the module makes or
# changes. Evaluates only, so that it needs no builder:
#
#   nix-instantiate --eval --strict --json nixos-tests/render.nix \
#     --argstr nixpkgs /path/to/nixpkgs --argstr host vm
{
  nixpkgs,
  host,
  system ? "x86_64-linux",
  # Paths of further modules, separated by colons.
  modules ? "",
}:
let
  lib = import (nixpkgs + "/lib");
  extraModules = map (path: /. + path) (lib.filter (path: path != "") (lib.splitString ":" modules));
in
import ./rendered.nix {
  inherit lib;
  inherit
    (import (nixpkgs + "/nixos/lib/eval-config.nix") {
      inherit system;
      modules = [
        ../modules
      ]
      ++ (import ./hosts.nix { inherit lib; }).${host}
      ++ extraModules;
    })
    config
    ;
}
