# Python with everything that both packages and their unit tests import.
{ callPackage, python3 }:
let
  runtime = callPackage ../pkgs/agent-box/package.nix { };
  harness = callPackage ../harness/package.nix { };
in
python3.withPackages (
  packages:
  runtime.dependencies
  ++ harness.dependencies
  ++ [
    packages.hypothesis
    packages.pytest-asyncio
    packages.pytest-xdist
  ]
)
