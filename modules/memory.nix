# Keeps a box without spare memory answering: a box that thrashes for hours is
# worse than an agent that is killed and respawned.
{ config, lib, ... }:
let
  inherit (lib) mkDefault mkOption types;
  cfg = config.services.agent-box;
  agents = lib.concatMapStringsSep "|" (agent: agent.program) (lib.attrValues cfg.agentCatalogue);
in
{
  options.services.agent-box.protectMemory = mkOption {
    type = types.bool;
    default = true;
    description = ''
      Compressed swap in RAM, earlyoom, and a raised OOM score for agents, so that memory
      which an agent runs away with costs that process and not the box. Every knob is a
      default that the config of the host overrides.
    '';
  };

  config = lib.mkIf (cfg.enable && cfg.protectMemory) {
    zramSwap = {
      enable = mkDefault true;
      algorithm = mkDefault "zstd";
      memoryPercent = mkDefault 100;
    };

    # Swap is RAM here: cheap to use, and pointless to read ahead from.
    boot.kernel.sysctl = {
      "vm.swappiness" = mkDefault 180;
      "vm.page-cluster" = mkDefault 0;
    };

    services.earlyoom = {
      enable = mkDefault true;
      # earlyoom sees the first 15 characters of the name of the process, and a
      # wrapped program is called `.name-wrapped`.
      extraArgs = [
        "--avoid"
        "^[.]?(sshd.*|systemd|systemd-.*|dbus-.*|caddy|ttyd|tmux.*|agent-box-.*|amazon-ssm-.*|ssm-.*|nix-daemon)(-wrapped)?$"
        "--prefer"
        "^[.]?(node|bun|${agents})(-wrap.*)?$"
      ];
    };

    # Two killers would race; earlyoom knows whom to spare.
    systemd.oomd.enable = mkDefault false;
  };
}
