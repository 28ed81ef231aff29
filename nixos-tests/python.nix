# Python with everything that both packages, their unit tests and the scenarios import.
{ callPackage, python3 }:
let
  runtime = callPackage ../pkgs/agent-box/package.nix { };
  harness = callPackage ../harness/package.nix { };
in
python3.withPackages (
  packages:
  runtime.dependencies
  ++ [
    # Installed, so that pytest finds its plugin; a checkout on PYTHONPATH comes first.
    harness
    packages.hypothesis
    packages.mypy
    packages.playwright
    packages.pytest-asyncio
    packages.pytest-xdist
    packages.types-pyyaml
    packages.types-requests
  ]
)
