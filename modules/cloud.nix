# Notices of the cloud that it takes the machine away: sessions are told, and
# ended in time to be resumed.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.services.agent-box;
  spot = cfg.spotInterruption;
  hardening = import ./hardening { inherit lib; };
in
{
  options.services.agent-box.spotInterruption = {
    enable = mkOption {
      type = types.bool;
      default = true;
      description = ''
        Watch for EC2's notices that this machine will be stopped or deleted (Spot), should
        make room (rebalance), or will be maintained. Sessions are told, and ended before the
        machine goes, so that they resume from a whole state. Where the machine is not an EC2
        instance the watch ends at once.
      '';
    };
    gracePeriod = mkOption {
      type = types.ints.unsigned;
      default = 75;
      description = ''
        Seconds that sessions get between the notice and their end. EC2 gives about 120.
      '';
    };
    pollInterval = mkOption {
      type = types.ints.positive;
      default = 5;
      description = "Seconds between two looks for a notice.";
    };
    message = mkOption {
      type = types.nullOr (types.strMatching "[^\n]+");
      default = null;
      example = "This machine stops in two minutes: commit and push now.";
      description = ''
        What sessions are told of an interruption, in one line. Null: what will happen, when,
        and what to do about it.
      '';
    };
    provider = mkOption {
      type = types.enum [
        "auto"
        "ec2"
      ];
      default = "auto";
      description = "Whose notices to watch for. `auto` asks the firmware where the machine runs.";
    };
  };

  config = lib.mkIf (cfg.enable && spot.enable) {
    systemd.services.agent-box-notify = {
      description = "Tell agent sessions of the cloud's notices";
      wantedBy = [ "multi-user.target" ];
      after = [ "network.target" ];
      path = [ pkgs.systemd ];
      # Spares other machines the start of a program that ends at once. Only the firmware of
      # instances of the first generations says no more than Xen.
      unitConfig = lib.mkIf (spot.provider == "auto") {
        ConditionFirmware = map (name: "|smbios-field(${name} = \"Amazon EC2\")") [
          "sys_vendor"
          "board_vendor"
          "bios_vendor"
        ];
        ConditionVirtualization = "|xen";
      };
      serviceConfig = hardening.notify // {
        Type = "exec";
        ExecStart = "${cfg.runtime}/bin/agent-box-notify";
        Restart = "on-failure";
        RestartSec = "5s";
      };
    };
  };
}
