# A machine of Lightsail, which was an Ubuntu and has become this: see hosts/aws/lightsail.yaml.
{ config, lib, ... }:
let
  inherit (config.services.agent-box) launch;
  efi = launch.disk == null;
in
{
  imports = [ ./cloud.nix ];

  fileSystems = lib.mapAttrs (_: mount: {
    device = "/dev/disk/by-uuid/${mount.uuid}";
    inherit (mount) fsType;
  }) launch.mounts;

  boot = {
    loader.grub = {
      device = if efi then "nodev" else launch.disk;
      efiSupport = efi;
      efiInstallAsRemovable = efi;
    };
    loader.efi.efiSysMountPoint = lib.mkIf (launch.mounts ? "/boot/efi") "/boot/efi";
    # Its browser console, and what support sees.
    kernelParams = [ "console=ttyS0,115200n8" ];
    initrd = {
      availableKernelModules = [
        "nvme"
        "xen-blkfront"
      ];
      # Only this kind moves the files of the old system out of the way, on the first boot.
      # NixOS 26.11 has it no more: a machine that gets there has booted already.
      systemd.enable = lib.mkIf (lib.versionOlder lib.trivial.release "26.11") (lib.mkDefault false);
    };
  };

  # The old system, once the new one has started.
  systemd.tmpfiles.rules = [ "R! /old-root" ];

  # Lightsail has no other way in for root. Its firewall opens the port, or does not.
  services.openssh = {
    enable = true;
    settings = {
      PasswordAuthentication = false;
      PermitRootLogin = "prohibit-password";
    };
  };
  users.users.root.openssh.authorizedKeys.keys = launch.sshKeys;
}
