# A machine that somebody launched from a template: the launch waits to hear that the box
# answers, and with which code its first password is chosen.
{ config, lib, ... }:
let
  cfg = config.services.agent-box;
  hardening = import ./hardening { inherit lib; };

  folder = "/var/lib/agent-box-launch";
in
{
  options.services.agent-box.firstBoot.enable = lib.mkOption {
    type = lib.types.bool;
    default = false;
    description = ''
      Take up, once, what a launch from a template left in {file}`${folder}`: the address in
      `signal`, a wait handle of CloudFormation, hears whether the box answers, and then a set-up
      code with which {option}`services.agent-box.web.user` chooses a password. The first password
      in `password` is taken up, too. Both files are removed.
    '';
  };

  config = lib.mkIf (cfg.enable && cfg.firstBoot.enable) {
    systemd.services.agent-box-first-boot = {
      description = "End of the launch of this box";
      wantedBy = [ "multi-user.target" ];
      wants = [ "network-online.target" ];
      after = [
        "network-online.target"
        "agent-box-gate.service"
        "caddy.service"
      ];
      # Whoever starts it goes on meanwhile: issuers take their time.
      restartIfChanged = false;
      unitConfig.ConditionPathExists = [
        "|${folder}/password"
        "|${folder}/signal"
      ];
      serviceConfig = hardening.firstBoot // {
        Type = "exec";
        ExecStart =
          "${cfg.runtime}/bin/agent-box-first-boot"
          + lib.optionalString (cfg.web.certificates == "internal") " --any-certificate";
        SyslogIdentifier = "agent-box-first-boot";
        StandardOutput = "journal+console";
      };
    };
  };
}
