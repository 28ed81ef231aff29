# What `nix run .#NAME` runs.
{
  lib,
  pkgs,
  # The evaluated host `vm`.
  vm,
  # A checkout of nixpkgs to render with.
  nixpkgs,
}:
let
  python = pkgs.callPackage ./python.nix { };

  app = name: description: settings: {
    type = "app";
    program = lib.getExe (pkgs.writeShellApplication ({ inherit name; } // settings));
    meta = { inherit description; };
  };

  # In a checkout, since that is where results go.
  harness = command: more: ''
    export PYTHONPATH=$PWD/harness/src
    exec python -m ${command} ${more} "$@"
  '';
in
{
  try = app "try" "Boot a throwaway box and attach to its first session" {
    text = ''
      folder=$(mktemp --directory --tmpdir agent-box.XXXXXX)
      trap 'rm --recursive --force "$folder"' EXIT
      cd "$folder"
      ${lib.getExe vm.config.system.build.vm} "$@"
    '';
  };

  test = app "test" "Run every test, or those that are named" {
    text = ''exec "$PWD/scripts/test" "$@"'';
  };

  render = app "render" "Remake what is rendered from the module" {
    runtimeInputs = [
      pkgs.nix
      python
    ];
    text = harness "agent_box_harness.rendered" "--nixpkgs ${nixpkgs}";
  };

  update-pins = app "update-pins" "Move what is pinned to the newest" {
    runtimeInputs = [
      pkgs.git
      pkgs.nix
      pkgs.nix-prefetch-git
      pkgs.nix-prefetch-github
      python
    ];
    text = harness "agent_box_harness.cli" "update-pins";
  };
}
