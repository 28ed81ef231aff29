# Two users for the scenarios: alice may run one command as root, bob none.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  # The edge as other options make it. Scenarios have it take one of these.
  edges = lib.mapAttrs' (
    name: options:
    lib.nameValuePair "agent-box/edges/${name}.Caddyfile" {
      text = import ../modules/web/caddyfile {
        inherit lib pkgs;
        web = config.services.agent-box.web // options;
        webhook = config.services.agent-box.webhook.enable;
      };
    }
  );
in
{
  # Gives way to the name that the driver of NixOS tests uses.
  networking.hostName = lib.mkOverride 1200 "agent-box";
  system.stateVersion = "26.05";

  services.agent-box = {
    enable = true;
    users = {
      alice = {
        sessions.main.agent = "shell";
        noticeUrlFile = "/etc/agent-box/notice-url";
        # Scenarios listen there.
        network.hostPorts = [ 8765 ];
        sudoAllowlist = [
          "/run/current-system/sw/bin/systemctl reload agent-box-sudo-probe.service"
        ];
        mayUpdate = true;
      };
      bob = {
        sessions.main.agent = "shell";
        # Not there, unless a scenario writes it.
        web.passwordHashFile = "/etc/agent-box-secrets/bob";
      };
    };
    selfUpdate = {
      enable = true;
      attribute = "box";
    };
    # Does nothing, unless a scenario plays a launch.
    firstBoot.enable = true;
    web = {
      enable = true;
      domain = "box.test";
      # No issuer reaches a machine of a test.
      certificates = "internal";
      redirectHttp = true;
    };
  };

  environment.etc =
    edges {
      http3.http3 = true;
      acme = {
        certificates = "acme";
        redirectHttp = false;
        # A scenario's own issuer.
        acmeDirectory = "https://localhost:14000/dir";
        acmeFallbackDirectory = "https://localhost:14443/dir";
        acmeEmail = "admin@box.test";
      };
    }
    // {
      # No secret: a scenario listens there.
      "agent-box/notice-url".text = "http://127.0.0.1:8765/alice-topic\n";
    };

  # Something harmless to reload: the file tells that the command took effect.
  systemd.services.agent-box-sudo-probe = {
    description = "Target of the allowed sudo command";
    wantedBy = [ "multi-user.target" ];
    serviceConfig = {
      Type = "oneshot";
      RemainAfterExit = true;
      ExecStart = "${pkgs.coreutils}/bin/true";
      ExecReload = "${pkgs.coreutils}/bin/touch /run/agent-box-sudo-probe";
    };
  };

  boot.loader.grub.device = lib.mkDefault "/dev/vda";
  fileSystems."/" = lib.mkDefault {
    device = "/dev/disk/by-label/nixos";
    fsType = "ext4";
  };
}
