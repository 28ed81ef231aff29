# Who eats, pays: when memory is short, something of the user ends who uses most of it, and
# never anything of somebody else. A box that thrashes for hours is worse than an agent that is
# ended and started again.
{ config, lib, ... }:
let
  inherit (lib) mkDefault mkOption types;
  cfg = config.services.agent-box;
  hardening = import ./hardening { inherit lib; };

  # Ends last, whatever it uses. Only root can say so, which a name would not be: those are
  # free to choose. No unit of a user may be here.
  spared.serviceConfig.OOMScoreAdjust = mkDefault (-500);
in
{
  options.services.agent-box.protectMemory = mkOption {
    type = types.bool;
    default = true;
    description = ''
      Compressed swap in RAM, memory that each user can count on, and a service that ends
      something of whoever uses most when memory is short: first by user, then the session or
      program that is heaviest. It stands in for earlyoom and systemd-oomd, which know no users.
      Every knob is a default that the config of the host overrides.
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

    # Two that end programs would race. earlyoom looks at processes one by one, so that the
    # biggest agent dies for somebody who spreads over many; systemd-oomd looks at groups, in
    # the same way.
    services.earlyoom.enable = mkDefault false;
    systemd.oomd.enable = mkDefault false;

    systemd.services = lib.mkMerge [
      {
        agent-box-memory = {
          description = "End something of the user who uses most when memory is short";
          wantedBy = [ "multi-user.target" ];
          restartTriggers = [ config.environment.etc."agent-box/box.json".text ];
          unitConfig.StartLimitIntervalSec = 0;
          serviceConfig = hardening.daemon // {
            Type = "notify";
            NotifyAccess = "main";
            ExecStart = "${cfg.runtime}/bin/agent-box-memory";
            Restart = "always";
            RestartSec = "100ms";
            RestartSteps = 10;
            RestartMaxDelaySec = "5s";
            WatchdogSec = 60;
            WatchdogSignal = "SIGKILL";

            # It ends processes and groups of others.
            CapabilityBoundingSet = [
              "CAP_DAC_OVERRIDE"
              "CAP_KILL"
            ];
            ProtectControlGroups = false;
            ProtectProc = "default";
            ProcSubset = "all";
            PrivateNetwork = true;

            # Has to act when there is nothing left: memory that nobody takes from it, a turn
            # when everything else wants one, and the last to be ended.
            Slice = "-.slice";
            LimitMEMLOCK = "infinity";
            MemoryMin = "64M";
            MemoryMax = "256M";
            CPUWeight = 10000;
            Nice = -15;
            OOMScoreAdjust = -1000;
            TasksMax = 8;
          };
        };
      }
      (lib.mkIf cfg.web.enable {
        agent-box-gate = spared;
        agent-box-sites = spared;
        agent-box-status = spared;
        caddy = spared;
      })
      (lib.mkIf (lib.any (user: user.networkPrivate) (lib.attrValues cfg.users)) {
        agent-box-names = spared;
      })
    ];
  };
}
