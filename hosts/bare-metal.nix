# Several people on one machine: the example of the README. Copy it next to your
# own hardware-configuration.nix, which replaces the disk and boot lines below.
{ lib, pkgs, ... }:
{
  networking.hostName = lib.mkDefault "agent-box";
  system.stateVersion = "26.05";

  services.agent-box = {
    enable = true;
    agent = "claude"; # or "codex", "opencode", "pi"
    users = {
      # One account, several agents. Sessions seed on first boot only.
      alice.sessions = {
        main = { };
        review.agent = "codex";
      };
      bob.remoteControlName = "bob-box";
      coder.agent = "codex";
      ci.skipPermissions = false; # keep approval prompts on
    };
    # The only elevated power of the agents: keep it tight.
    sudoAllowlist = [ "/run/current-system/sw/bin/systemctl reload caddy.service" ];
    extraPackages = with pkgs; [
      git
      ripgrep
      jq
    ];
  };

  boot.loader.grub.device = lib.mkDefault "/dev/sda";
  fileSystems."/" = lib.mkDefault {
    device = "/dev/disk/by-label/nixos";
    fsType = "ext4";
  };
}
