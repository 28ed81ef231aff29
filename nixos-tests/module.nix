# The module with as much of NixOS around it as it touches. A whole NixOS for each
# evaluation takes a second; this takes nothing.
{ lib, pkgs }:
let
  anything = lib.mkOption {
    type = lib.types.anything;
    default = { };
    visible = false;
  };
  list = lib.mkOption {
    type = lib.types.listOf lib.types.anything;
    default = [ ];
  };

  surroundings = {
    options = {
      assertions = list;
      warnings = list;
      nixpkgs = {
        pkgs = anything;
        config = anything;
      };
      boot = anything;
      environment = anything;
      ids = anything;
      networking = anything;
      nix = anything;
      programs.git = anything;
      services = {
        caddy = anything;
        dbus = anything;
        earlyoom = anything;
        fail2ban = anything;
        getty = anything;
        udev = anything;
      };
      systemd = anything;
      system = anything;
      users = anything;
      zramSwap = anything;
      security.polkit = {
        enable = lib.mkOption {
          type = lib.types.bool;
          default = false;
        };
        extraConfig = lib.mkOption {
          type = lib.types.lines;
          default = "";
        };
      };
      security.sudo = {
        enable = lib.mkOption {
          type = lib.types.bool;
          default = true;
        };
        extraRules = list;
      };
    };
    config = {
      _module.args.pkgs = pkgs;
      networking.fqdnOrHostName = "box";
      networking.hostName = "box";
      nix.package = pkgs.nix;
      ids.uids.messagebus = 4;
      ids.gids.wheel = 1;
    };
  };
in
{
  # The module together with `modules`, as evalModules returns it.
  evaluate =
    modules:
    lib.evalModules {
      modules = [
        ../modules
        surroundings
      ]
      ++ modules;
    };
}
