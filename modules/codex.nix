# The codex app-server of a user, which the codex apps drive. It is one for all sessions
# of the user, so it belongs to none of them: sessions with remote control refer to it,
# and it runs for as long as one does.
{ config, lib, ... }:
let
  cfg = config.services.agent-box;
  agentUnit = import ./agent-unit.nix { inherit lib config; };
  hasCodex = lib.elem "codex" cfg.installAgents;

  # Its parent is root's, which looks into it: where the user could put a link, it would tell
  # whether a directory of somebody else is empty.
  references = user: "agent-box-codex/${user}";

  orInfinity = value: if value == null then "infinity" else value;

  # systemd takes 64 characters at most, and letters, digits, dots and dashes.
  label = cfg.hostLabel;
  named = builtins.match "[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?" label != null;

  serviceOf =
    name: user:
    lib.recursiveUpdate (agentUnit name user) {
      description = "Codex app-server of ${name}";
      after = [ "agent-box-${name}.service" ];
      serviceConfig = {
        ExecStart = "${cfg.runtime}/bin/agent-box-codex-daemon";
        RuntimeDirectory = [
          "agent-box-${name}"
          (references name)
        ];
        Restart = "on-failure";
        RestartSec = "1s";
        RestartSteps = 10;
        RestartMaxDelaySec = "30s";
        # What the apps have it do counts as one more session.
        MemoryMax = orInfinity user.effectiveLimits.session.memoryMax;
        TasksMax = orInfinity user.effectiveLimits.session.tasksMax;
      }
      # codex tells its apps what gethostname(2) says, and the name of a cloud machine
      # means nothing to people.
      // lib.optionalAttrs named { ProtectHostname = "private:${label}"; };
    };

  pathOf = name: _: {
    description = "Sessions of ${name} that refer to the codex app-server";
    wantedBy = [ "multi-user.target" ];
    pathConfig = {
      DirectoryNotEmpty = "/run/${references name}";
      TriggerLimitIntervalSec = 0;
    };
  };

  perUser =
    make:
    lib.mapAttrs' (name: user: lib.nameValuePair "agent-box-codex-${name}" (make name user)) cfg.users;
in
{
  config = lib.mkIf (cfg.enable && hasCodex) {
    systemd.services = lib.mkMerge [
      (perUser serviceOf)
      (perUser (name: _: cfg.inUserNetwork name))
      # The panes leave their references there.
      (lib.mapAttrs' (
        name: _:
        lib.nameValuePair "agent-box-${name}" { serviceConfig.RuntimeDirectory = [ (references name) ]; }
      ) cfg.users)
    ];
    systemd.paths = perUser pathOf;
  };
}
