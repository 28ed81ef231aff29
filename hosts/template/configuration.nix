{ pkgs, ... }:
{
  networking.hostName = "box";
  system.stateVersion = "26.05"; # the release that it was installed with; do not raise it later

  services.agent-box = {
    enable = true;

    # Who works here, and with what. Sessions are seeds: they are made on the first boot.
    users.alice.sessions = {
      main = { }; # the default agent, claude
      review.agent = "codex";
    };
    users.bob = { };

    extraPackages = with pkgs; [
      nodejs
      uv
    ];

    # The box in the browser. Its name must lead to this machine, where port 443 is opened.
    # web.enable = true;
    # web.domain = "box.example.org";
    # users.alice.web.passwordHashFile = "/var/lib/secrets/alice-password-hash";
  };

  # Let alice move the whole box to its newest release, with `agent-box-update start`, if
  # these files are the box's own, in /etc/nixos.
  # services.agent-box.selfUpdate.enable = true;
  # services.agent-box.users.alice.mayUpdate = true;

  # Nobody has a password or a key yet. Give yourself one before you restart:
  # users.users.root.openssh.authorizedKeys.keys = [ "ssh-ed25519 …" ];
  # services.openssh.enable = true;
}
