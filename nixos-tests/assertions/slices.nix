# Each user has a slice, which sandbox and codex app-server share. A dash in the name of a
# slice means "below": users whose names begin alike must not share a limit.
{ lib, evaluated }:
let
  wanted = {
    a = "agent-box-a.slice";
    a-b = "agent-box-a\\x2db.slice";
  };
  config = evaluated { } {
    users = lib.mapAttrs (_: _: { }) wanted;
    # Names of units are all that counts here.
    hideProcesses = false;
  };

  judge =
    unit: name: slice:
    let
      found = config.systemd.services."${unit}${name}".serviceConfig.Slice or "none";
    in
    lib.optional (found != slice) "${unit}${name} is in ${found}, not in ${slice}";

  # The slice itself, with its limits.
  made =
    slice: config.systemd.slices.${lib.removeSuffix ".slice" slice}.sliceConfig or { } ? MemoryMax;
in
lib.concatLists (lib.mapAttrsToList (judge "agent-box-") wanted)
++ lib.concatLists (lib.mapAttrsToList (judge "agent-box-codex-") wanted)
++ map (slice: "nobody limits ${slice}") (lib.filter (slice: !made slice) (lib.attrValues wanted))
