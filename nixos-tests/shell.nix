# Tools to work on agent-box with.
{
  callPackage,
  mkShellNoCC,
  mypy,
  nixfmt,
  qemu,
  ruff,
  shellcheck,
  tmux,
}:
mkShellNoCC {
  packages = [
    (callPackage ./python.nix { })
    mypy
    nixfmt
    qemu
    ruff
    shellcheck
    tmux
  ];
}
