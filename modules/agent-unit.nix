# What units have in common in which agents of a user run: sessions, and the codex app-server
# beside them. Takes a user's name and options.
{ lib, config }:
let
  cfg = config.services.agent-box;
  hardening = import ./hardening { inherit lib; };
in
name: user: {
  unitConfig = {
    RequiresMountsFor = "/home/${name}";
    StartLimitIntervalSec = 0;
  };
  # A rebuild must not end what agents are at work on. New settings apply to
  # the next start of the unit.
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
      WorkingDirectory = "~";
      EnvironmentFile = cfg.environmentFiles ++ user.environmentFiles;
      RuntimeDirectoryMode = "0700";
      # All units of the user and every attached client use it; it must outlive a restart of each.
      RuntimeDirectoryPreserve = true;
      RemoveIPC = true;
      # One agent that runs out of memory must not take the others down.
      OOMPolicy = "continue";
      Slice = cfg.userSlice name;
      # A core dump holds the tokens of its session. `ulimit -c` turns it on.
      LimitCORE = "0:infinity";
    }
    // lib.optionalAttrs cfg.protectMemory { OOMScoreAdjust = lib.mkDefault 500; };
}
