# The agent-box module: one concern per file, options beside the config they drive.
{ lib, ... }:
{
  imports = [
    ./agents.nix
    ./attention.nix
    ./box.nix
    ./bus.nix
    ./cloud.nix
    ./codex.nix
    ./firewall.nix
    ./first-boot.nix
    ./guides.nix
    ./host-ports.nix
    ./limits.nix
    ./logins.nix
    ./memory.nix
    ./metadata.nix
    ./network.nix
    ./nix-daemon.nix
    ./processes.nix
    ./quota.nix
    ./runtime-directories.nix
    ./sandbox.nix
    ./sessions.nix
    ./status.nix
    ./sudo.nix
    ./update.nix
    ./users.nix
    ./web
    ./webhook.nix
  ];

  options.services.agent-box.enable = lib.mkEnableOption "agent-box, a multi-user host for coding agents";
}
