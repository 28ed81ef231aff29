# Each user has a slice, which sandbox, codex app-server and whatever else runs as the user
# share. A dash in the name of a
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

  inherit (import ./boxes.nix) web;

  # Everything that makes units for a user.
  whole = evaluated { } (
    web { }
    // {
      users.u0.noticeUrlFile = "/run/secrets/url";
      selfUpdate.enable = true;
      hideProcesses = false;
    }
  );
  ofUser = lib.filterAttrs (
    _: unit: (unit.serviceConfig.User or null) == "u0"
  ) whole.systemd.services;
  outside = lib.filterAttrs (
    _: unit: (unit.serviceConfig.Slice or null) != "agent-box-u0.slice"
  ) ofUser;

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
++ map (unit: "${unit} runs as u0 and counts for nobody") (lib.attrNames outside)
++ lib.optional (lib.length (lib.attrNames ofUser) < 7) "only ${toString (lib.attrNames ofUser)} run as u0"
++ map (slice: "nobody limits ${slice}") (lib.filter (slice: !made slice) (lib.attrValues wanted))
