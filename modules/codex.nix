# The codex app-server of a user, which the codex apps drive. It is one for all sessions
# of the user, so it belongs to none of them: sessions with remote control refer to it,
# and it runs for as long as one does.
{ config, lib, ... }:
let
  cfg = config.services.agent-box;
  hardening = import ./hardening.nix { inherit lib; };
  hasCodex = lib.elem "codex" cfg.installAgents;

  # Its parent is root's, which looks into it: where the user could put a link, it would tell
  # whether a directory of somebody else is empty.
  references = user: "agent-box-codex/${user}";

  orInfinity = value: if value == null then "infinity" else value;

  # systemd takes 64 characters at most, and letters, digits, dots and dashes.
  label = cfg.hostLabel;
  named = builtins.match "[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?" label != null;

  serviceOf = name: user: {
    description = "Codex app-server of ${name}";
    after = [ "agent-box-${name}.service" ];
    unitConfig = {
      RequiresMountsFor = "/home/${name}";
      # The same /tmp as the sessions.
      JoinsNamespaceOf = "agent-box-${name}.service";
      StartLimitIntervalSec = 0;
    };
    # A rebuild must not end what codex is at work on.
    restartIfChanged = false;
    path = cfg.sessionPath name;
    environment = cfg.sessionEnvironment name;
    serviceConfig =
      hardening.sandbox {
        user = name;
        sudo = user.effectiveSudo != [ ];
        allowCloudMetadata = user.metadataAllowed;
      }
      // {
        Type = "exec";
        User = name;
        Group = name;
        ExecStart = "${cfg.runtime}/bin/agent-box-codex-daemon";
        WorkingDirectory = "~";
        RemoveIPC = true;
        EnvironmentFile = cfg.environmentFiles ++ user.environmentFiles;
        RuntimeDirectory = [
          "agent-box-${name}"
          (references name)
        ];
        RuntimeDirectoryMode = "0700";
        RuntimeDirectoryPreserve = true;
        Restart = "on-failure";
        RestartSec = "1s";
        RestartSteps = 10;
        RestartMaxDelaySec = "30s";
        OOMPolicy = "continue";
        # What the apps have it do counts as one more session.
        Slice = cfg.userSlice name;
        MemoryMax = orInfinity user.effectiveLimits.session.memoryMax;
        TasksMax = orInfinity user.effectiveLimits.session.tasksMax;
        LimitCORE = "0:infinity";
      }
      # codex tells its apps what gethostname(2) says, and the name of a cloud machine
      # means nothing to people.
      // lib.optionalAttrs named { ProtectHostname = "private:${label}"; }
      // lib.optionalAttrs cfg.protectMemory { OOMScoreAdjust = lib.mkDefault 500; };
  };

  pathOf = name: _: {
    description = "Sessions of ${name} that refer to the codex app-server";
    wantedBy = [ "multi-user.target" ];
    pathConfig.DirectoryNotEmpty = "/run/${references name}";
  };

  perUser =
    make:
    lib.mapAttrs' (name: user: lib.nameValuePair "agent-box-codex-${name}" (make name user)) cfg.users;
in
{
  config = lib.mkIf (cfg.enable && hasCodex) {
    systemd.services = lib.mkMerge [
      (perUser serviceOf)
      # The panes leave their references there.
      (lib.mapAttrs' (
        name: _:
        lib.nameValuePair "agent-box-${name}" { serviceConfig.RuntimeDirectory = [ (references name) ]; }
      ) cfg.users)
    ];
    systemd.paths = perUser pathOf;
  };
}
