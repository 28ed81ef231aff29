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

  # Whoever knows of an account adds to its list of names.
  accounts =
    names:
    lib.mkOption {
      type = lib.types.attrsOf (
        lib.types.submodule {
          freeformType = lib.types.attrsOf lib.types.anything;
          options.${names} = list;
        }
      );
      default = { };
      visible = false;
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
      # What the module reads of it stands apart from what it sets.
      networking = {
        dhcpcd = anything;
        fqdnOrHostName = anything;
        hostName = anything;
        networkmanager = anything;
        nftables = anything // {
          default.enable = false;
        };
        search = list;
        firewall = {
          enable = anything // {
            default = true;
          };
          filterForward = anything // {
            default = false;
          };
          allowedTCPPorts = list;
          allowedUDPPorts = list;
          extraCommands = anything // {
            default = "";
          };
          extraForwardRules = anything // {
            default = "";
          };
          extraInputRules = anything // {
            default = "";
          };
        };
      };
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
      users = {
        users = accounts "extraGroups";
        groups = accounts "members";
      };
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
      services.fail2ban.package = pkgs.fail2ban;
      ids.uids.messagebus = 4;
      ids.gids.wheel = 1;
      # The edge asks for its own.
      ids.uids.caddy = 239;
      ids.gids.caddy = 239;
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
