# Hardening of our units as plain attrsets of serviceConfig, one per class of unit.
# `base` is what every class shares. A setting that is weaker than it could be
# names the tool that the stronger one breaks.
{ lib }:
let
  shared = import ./shared.nix { inherit lib; };
in
shared // import ./box.nix { inherit lib shared; } // import ./users.nix { inherit lib shared; }
