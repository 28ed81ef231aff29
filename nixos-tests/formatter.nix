# `nix fmt`: how every kind of file in the repository looks.
{
  deadnix,
  nixfmt,
  ruff,
  shellcheck,
  shfmt,
  treefmt,
}:
let
  shell = [
    ".ci/run"
    "scripts/*"
  ];
in
treefmt.withConfig {
  name = "agent-box-fmt";

  runtimeInputs = [
    deadnix
    nixfmt
    ruff
    shellcheck
    shfmt
  ];

  settings = {
    on-unmatched = "info";
    excludes = [ "nixos-tests/rendered/*" ];
    formatter = {
      # Removes what is not used, so it comes before what lays out the rest.
      deadnix = {
        command = "deadnix";
        options = [ "--edit" ];
        includes = [ "*.nix" ];
        priority = 1;
      };
      nixfmt = {
        command = "nixfmt";
        includes = [ "*.nix" ];
        priority = 2;
      };
      ruff-check = {
        command = "ruff";
        options = [
          "check"
          "--fix"
        ];
        includes = [ "*.py" ];
        priority = 1;
      };
      ruff-format = {
        command = "ruff";
        options = [ "format" ];
        includes = [ "*.py" ];
        priority = 2;
      };
      # Only judges; what it finds is for a person to mend.
      shellcheck = {
        command = "shellcheck";
        includes = shell;
        priority = 1;
      };
      shfmt = {
        command = "shfmt";
        options = [
          "--write"
          "--simplify"
          "--indent"
          "2"
          "--case-indent"
        ];
        includes = shell;
        priority = 2;
      };
    };
  };
}
