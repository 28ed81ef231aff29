# The daemon of Nix works for every user of the box, and its builders run as accounts of
# their own, outside of each sandbox and slice: what users may not do themselves, and may
# not take of the machine, they get no other way from it.
{ config, lib, ... }:
let
  inherit (lib) mkDefault mkOption types;
  cfg = config.services.agent-box;
  hardening = import ./hardening { inherit lib; };
in
{
  options.services.agent-box.allowNixDaemonMetadata = mkOption {
    type = types.bool;
    default = false;
    description = ''
      Let the daemon of Nix reach the metadata addresses of clouds, for a binary cache in S3 that
      it reads with the role of the machine. Its builders still do not.
    '';
  };

  config = lib.mkIf (cfg.enable && (config.nix.enable or true)) {
    systemd.services.nix-daemon.serviceConfig = lib.mkMerge [
      # Builders of fixed outputs have the network, and what the daemon fetches for a user
      # it fetches as root. All of them stay in its group.
      (lib.mkIf (cfg.keepsMetadata && !cfg.allowNixDaemonMetadata) {
        IPAddressDeny = hardening.metadataAddresses;
      })
      # A build gives way to sessions, and one that runs away ends alone. As much as one
      # user may have; a machine for builds sets its own.
      (lib.mkIf cfg.protectMemory {
        CPUWeight = mkDefault 50;
        MemoryHigh = mkDefault "70%";
        MemoryMax = mkDefault "80%";
        OOMPolicy = mkDefault "continue";
        OOMScoreAdjust = mkDefault 500;
        TasksMax = mkDefault 8192;
      })
    ];
  };
}
