# What a machine of a NixOS test gets for each need that a scenario declares. A need
# that is not listed is an error: somebody has to decide what it takes.
{ lib, pkgs }:
let
  # Everything below is what a virtual machine with a kernel of its own has anyway.
  given = {
    modules = [ ];
    otherNodes = [ ];
    pythonPackages = _: [ ];
    environment = { };
  };

  memory = size: { virtualisation.memorySize = lib.mkForce size; };

  table = {
    kernel = given;
    memory-limits = given;
    network = given;
    pids-limits = given;
    power-cut = given;
    reboot = given;
    setuid = given;
    zram = given;

    # A small ACME issuer, and what makes a certificate for it.
    acme-issuer = given // {
      modules = [
        {
          environment.systemPackages = [
            pkgs.openssl
            pkgs.pebble
          ];
        }
      ];
    };

    # The CLIs come with the module; they are large when they run.
    agents = given // {
      modules = [ (memory 4096) ];
    };

    # On the driver's side, against a port of the machine.
    browser = given // {
      pythonPackages = python: [ python.playwright ];
      environment = import ./browser.nix { inherit lib pkgs; };
    };

    # A second box on the same network, to attack the first one from.
    two-nodes = given // {
      otherNodes = [ "peer" ];
    };
  };
in
{
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
      modules = lib.unique (lib.concatMap (settings: settings.modules) each);
      otherNodes = lib.unique (lib.concatMap (settings: settings.otherNodes) each);
      pythonPackages = python: lib.concatMap (settings: settings.pythonPackages python) each;
      environment = lib.mergeAttrsList (map (settings: settings.environment) each);
    };
}
