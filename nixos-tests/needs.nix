# What the NixOS test of a file gets for each need that a scenario in it declares. A need
# that is not listed is an error: somebody has to decide what it takes.
{ lib, pkgs }:
let
  # Everything below is what a virtual machine with a kernel of its own has, or guest.nix gives it.
  given = {
    size = "small";
    pythonPackages = _: [ ];
    environment = { };
  };

  table = {
    acme-issuer = given;
    kernel = given;
    memory-limits = given;
    network = given;
    pids-limits = given;
    power-cut = given;
    reboot = given;
    zram = given;

    # The CLIs come with the module; they are large when they run.
    agents = given // {
      size = "large";
    };

    # On the driver's side, against a port of the machine.
    browser = given // {
      pythonPackages = python: [ python.playwright ];
      environment = import ./browser.nix { inherit lib pkgs; };
    };
  };
in
{
  # MiB of the machines that there are.
  memorySizes = {
    small = 2048;
    large = 4096;
  };

  settingsOf =
    file: needs:
    let
      each = map (
        need:
        table.${need} or (throw "${file} needs `${need}`: say in nixos-tests/needs.nix what that takes")
      ) needs;
    in
    {
      inherit needs;
      size = if lib.any (settings: settings.size == "large") each then "large" else "small";
      pythonPackages = python: lib.concatMap (settings: settings.pythonPackages python) each;
      environment = lib.mergeAttrsList (map (settings: settings.environment) each);
    };
}
