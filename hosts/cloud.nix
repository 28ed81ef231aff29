# What machines that a template launches have in common. Everything about one of them is in
# a small file that its launch wrote, so that what is decided here reaches it by an update.
{ config, lib, ... }:
let
  inherit (lib) mkDefault mkOption types;
  inherit (config.services.agent-box) launch;
  launched = launch.domain != null;

  # Translate addresses, so that a machine without IPv4 reaches GitHub. nat64.net runs them.
  translators = [
    "2a00:1098:2b::1"
    "2a00:1098:2c::1"
    "2a01:4f8:c2c:123f::1"
  ];

  mount = types.submodule {
    options = {
      uuid = mkOption {
        type = types.str;
        description = "UUID of the file system.";
      };
      fsType = mkOption {
        type = types.str;
        description = "Kind of file system.";
      };
    };
  };
in
{
  options.services.agent-box.launch = {
    provider = mkOption {
      type = types.enum [
        "aws"
        "lightsail"
      ];
      default = "aws";
      description = "Which of the modules for machines in a cloud this one has.";
    };
    system = mkOption {
      type = types.nullOr types.str;
      default = null;
      description = "Kind of machine, as Nix calls it. Null: whoever evaluates it says so.";
    };
    domain = mkOption {
      type = types.nullOr types.str;
      default = null;
      description = "Public name of the machine. Null: nobody has launched it, it is an image.";
    };
    user = mkOption {
      type = types.str;
      default = "agent";
      description = "Name of the user.";
    };
    agent = mkOption {
      type = types.str;
      default = "claude";
      description = "Agent of the user's sessions.";
    };
    nat64 = mkOption {
      type = types.bool;
      default = false;
      description = "Whether a public service translates to IPv4 for the machine.";
    };
    sshKeys = mkOption {
      type = types.listOf types.str;
      default = [ ];
      description = "Keys that root may log in with, on a machine without another way for root.";
    };
    disk = mkOption {
      type = types.nullOr types.str;
      default = null;
      description = "Disk that a machine without UEFI starts from. Null: UEFI.";
    };
    mounts = mkOption {
      type = types.attrsOf mount;
      default = { };
      description = "File systems that a machine had before it became NixOS.";
    };
  };

  config = {
    system.stateVersion = mkDefault "26.05";
    nixpkgs.hostPlatform = lib.mkIf (launch.system != null) (mkDefault launch.system);

    services.agent-box = {
      enable = true;
      agent = mkDefault launch.agent;
      users.${launch.user} = { };
      web = {
        enable = true;
        domain = if launched then launch.domain else "localhost";
        certificates = mkDefault (if launched then "acme" else "internal");
      };
      remoteControlHost = lib.mkIf launched (mkDefault launch.domain);
      firstBoot.enable = true;
      selfUpdate = {
        enable = mkDefault launched;
        attribute = mkDefault "box";
      };
    };

    # Above the empty name with which images of clouds leave it to the metadata service.
    networking.hostName = lib.mkOverride 900 "agent-box";

    networking.resolvconf.enable = lib.mkIf launch.nat64 false;
    environment.etc."resolv.conf" = lib.mkIf launch.nat64 {
      text = lib.concatMapStrings (address: "nameserver ${address}\n") translators;
    };

    # An update evaluates and builds on the machine itself, which may have 2 GiB.
    swapDevices = [
      {
        device = "/swapfile";
        size = 3072;
      }
    ];

    # Disks in a cloud are small, and nobody looks after them.
    nix.gc = {
      automatic = mkDefault true;
      options = mkDefault "--delete-older-than 7d";
    };
    nix.settings = {
      experimental-features = [
        "nix-command"
        "flakes"
      ];
      min-free = mkDefault 1073741824;
      max-free = mkDefault 5368709120;
    };
    services.journald.extraConfig = mkDefault "SystemMaxUse=200M";
    documentation.nixos.enable = mkDefault false;
  };
}
