# A virtual machine with one user, logged in on the console.
{ lib, ... }:
{
  networking.hostName = lib.mkDefault "agent-box";
  system.stateVersion = "26.05";

  services.agent-box = {
    enable = true;
    users.agent = { };
  };

  # Change it on first boot: `passwd`. root has no password and cannot log in.
  users.users.agent.initialPassword = "agent-box";
  services.getty.autologinUser = "agent";

  # `nix run .#try`: a throwaway machine in this terminal, attached to the session.
  virtualisation.vmVariant = {
    virtualisation = {
      cores = 2;
      graphics = false;
      memorySize = 4096;
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
