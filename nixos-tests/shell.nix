# Tools to work on agent-box with. The portable guest needs Debian's mmdebstrap as well,
# which nixpkgs does not have; with Nix at hand the NixOS guest takes its place.
{
  callPackage,
  git,
  mkShellNoCC,
  mypy,
  nix-prefetch-git,
  nix-prefetch-github,
  openssh,
  qemu,
  ruff,
  shellcheck,
  tmux,
}:
mkShellNoCC {
  packages = [
    (callPackage ./formatter.nix { })
    (callPackage ./python.nix { })
    git
    mypy
    nix-prefetch-git
    nix-prefetch-github
    openssh
    qemu
    ruff
    shellcheck
    tmux
  ];

  # Both packages from the checkout, so that an edit shows at once.
  shellHook = ''
    export PYTHONPATH=$PWD/harness/src:$PWD/pkgs/agent-box/src
  '';
}
