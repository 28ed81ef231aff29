# Notices to people elsewhere: an agent asks something, cannot start, or is done.
{ config, lib, ... }:
let
  inherit (lib) mkOption types;
  cfg = config.services.agent-box;
  hardening = import ./hardening { inherit lib; };
  told = lib.filterAttrs (_: user: user.noticeUrlFile != null) cfg.users;
in
{
  options.services.agent-box.users = mkOption {
    type = types.attrsOf (
      types.submodule {
        options.noticeUrlFile = mkOption {
          type = types.nullOr types.str;
          default = null;
          example = "/run/secrets/alice-ntfy-url";
          description = ''
            File outside the store that holds an http or https URL. When one of the user's agents
            has waited for an answer for ten seconds, fails, or is done after a minute of work
            and more, a text is posted there, as [ntfy](https://ntfy.sh) takes it. Whoever knows
            the URL of a topic can read it, so it is treated as a secret.
          '';
        };
      }
    );
  };

  config = lib.mkIf cfg.enable {
    systemd.services = lib.mapAttrs' (
      name: user:
      lib.nameValuePair "agent-box-attention-${name}" (lib.mkMerge [
        (cfg.inUserNetwork name)
        {
        description = "Notices about the agents of ${name}";
        wantedBy = [ "multi-user.target" ];
        wants = [ "network-online.target" ];
        after = [
          "agent-box-${name}.service"
          "network-online.target"
        ];
        serviceConfig = hardening.attention // cfg.besideSessions name // {
          Type = "exec";
          User = name;
          Group = name;
          ExecStart = "${cfg.runtime}/bin/agent-box-attention";
          LoadCredential = "url:${user.noticeUrlFile}";
          Restart = "always";
          RestartSec = "5s";
          RestartSteps = 10;
          RestartMaxDelaySec = "5min";
          # A wrong address does not get better by itself.
          RestartPreventExitStatus = 2;
        };
      }
      ])
    ) told;
  };
}
