# How much of the disk each user may keep, where the file system counts by user.
{ config, lib, ... }:
let
  cfg = config.services.agent-box;
  hardening = import ./hardening { inherit lib; };
  limited = lib.filterAttrs (_: user: user.effectiveLimits.user.diskMax != null) cfg.users;
in
{
  config = lib.mkIf (cfg.enable && limited != { }) {
    systemd.services.agent-box-quota = {
      description = "Limits of disk of users";
      wantedBy = [ "multi-user.target" ];
      restartTriggers = [ config.environment.etc."agent-box/box.json".text ];
      unitConfig.RequiresMountsFor = map (name: "/home/${name}") (lib.attrNames limited);
      serviceConfig = hardening.daemon // {
        Type = "oneshot";
        RemainAfterExit = true;
        ExecStart = "${cfg.runtime}/bin/agent-box-quota";
        # To look at homes, and to set limits.
        CapabilityBoundingSet = [
          "CAP_DAC_READ_SEARCH"
          "CAP_SYS_ADMIN"
        ];
        PrivateNetwork = true;
        ProtectHome = "read-only";
        SystemCallFilter = [
          "@system-service"
          "~@privileged @resources"
          "quotactl_fd"
        ];
      };
    };
  };
}
