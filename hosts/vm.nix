# A virtual machine with one user, logged in on the console.
{ lib, ... }:
{
  networking.hostName = lib.mkDefault "agent-box";
  system.stateVersion = "26.05";

  services.agent-box = {
    enable = true;
    users.agent = { };
    web = {
      enable = true;
      domain = "localhost";
      # Where the port of the machine is forwarded to.
      origins = [
        "https://localhost:8443"
        "https://localhost"
      ];
      certificates = "internal";
    };
  };

  # Change it on first boot: `passwd`. root has no password and cannot log in.
  users.users.agent.initialPassword = "agent-box";
  services.getty.autologinUser = "agent";

  # Nobody configures NixOS from inside of it, and the manual is a tenth of its evaluation.
  documentation.nixos.enable = lib.mkDefault false;

  # Old names of packages, of which this uses none, are a thirtieth.
  nixpkgs.config.allowAliases = false;

  # `nix run .#try`: a throwaway machine in this terminal, attached to the session.
  virtualisation.vmVariant = {
    virtualisation = {
      cores = 2;
      graphics = false;
      memorySize = 4096;
      forwardPorts = [
        {
          from = "host";
          host.port = 8443;
          guest.port = 443;
        }
      ];
    };
    environment.loginShellInit = "agent-box-session attach main";
  };

  # The image modules and build-vm bring disks and a boot loader of their own.
  boot.loader.grub.device = lib.mkDefault "/dev/vda";
  fileSystems."/" = lib.mkDefault {
    device = "/dev/disk/by-label/nixos";
    fsType = "ext4";
    autoResize = true;
  };
}
