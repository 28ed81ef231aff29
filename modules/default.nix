# The agent-box module: one concern per file, options beside the config they drive.
{ lib, ... }:
{
  imports = [
    ./agents.nix
    ./attention.nix
    ./box.nix
    ./cloud.nix
    ./codex.nix
    ./first-boot.nix
    ./guides.nix
    ./limits.nix
    ./memory.nix
    ./metadata.nix
    ./network-stub.nix
    ./processes.nix
    ./sandbox.nix
    ./sessions.nix
    ./sudo.nix
    ./update.nix
    ./users.nix
    ./web
    ./webhook.nix
  ];

  options.services.agent-box.enable = lib.mkEnableOption "agent-box, a multi-user host for coding agents";
}
