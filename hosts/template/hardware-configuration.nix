# In place of that of your machine:
#   nixos-generate-config --show-hardware-config >hardware-configuration.nix
{
  boot.loader.grub.device = "/dev/sda";
  fileSystems."/" = {
    device = "/dev/disk/by-label/nixos";
    fsType = "ext4";
  };
}
