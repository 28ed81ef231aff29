# Users see their own processes only, in login shells too: the command line of an
# agent holds its prompt. The sandboxes have a /proc of their own (ProtectProc).
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.services.agent-box;

  # Daemons with a uid of their own that must know all processes. Group root is
  # the one that the kernel lets see them.
  seesAll.serviceConfig.SupplementaryGroups = [ "root" ];
in
{
  options.services.agent-box.hideProcesses = mkOption {
    type = types.bool;
    default = true;
    description = ''
      Hide the processes of other users in `/proc` of the whole machine, as `hidepid=invisible`
      does. Root sees all. Without it, whoever has a login shell reads the command lines of
      all agents, prompts included; from inside a session they are hidden in any case.
    '';
  };

  config = lib.mkIf (cfg.enable && cfg.hideProcesses) {
    systemd.services = {
      # A unit and not an entry for /proc among the file systems: those are mounted
      # before there is a configuration to change.
      agent-box-processes = {
        description = "Hide the processes of other users";
        wantedBy = [ "sysinit.target" ];
        before = [ "sysinit.target" ];
        unitConfig.DefaultDependencies = false;
        serviceConfig = {
          Type = "oneshot";
          RemainAfterExit = true;
          ExecStart = "${pkgs.util-linux}/bin/mount -o remount,hidepid=invisible /proc";
        };
      };

      # It could not find what to end.
      earlyoom = lib.mkIf config.services.earlyoom.enable seesAll;
      # It looks up who asks.
      polkit = lib.mkIf config.security.polkit.enable seesAll;
    };
  };
}
