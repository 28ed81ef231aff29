# No user can be named so that a unit or a runtime directory of theirs is one of the box, or of
# another user.
{
  lib,
  evaluated,
  messagesIn,
}:
let
  inherit (import ./boxes.nix) web;

  # With everything that makes units.
  config = evaluated { } (
    web { }
    // {
      users.u0.noticeUrlFile = "/run/secrets/url";
      selfUpdate.enable = true;
      # Names are all that counts here.
      hideProcesses = false;
    }
  );

  namesOf = kind: lib.attrNames (config.systemd.${kind} or { });
  units = lib.concatMap namesOf [
    "paths"
    "services"
    "sockets"
    "timers"
  ];
  sockets = lib.concatMap (unit: unit.listenStreams) (lib.attrValues config.systemd.sockets);
  directories = lib.concatMap (line: if line == null then [ ] else line) (
    map (builtins.match ".* /run/(agent-box-[a-z0-9-]+)[ /].*") config.services.agent-box.tmpfiles
    ++ map (builtins.match "/run/(agent-box-[a-z0-9-]+)/.*") sockets
  );
  ours = map (name: lib.removePrefix "agent-box-" (lib.removeSuffix "@" name)) (
    lib.filter (lib.hasPrefix "agent-box-") (units ++ directories)
  );

  # The user who would have that unit: of `terminal-u0` it is one called `terminal-x`.
  clashing =
    name: if lib.hasSuffix "-u0" name then [ "${lib.removeSuffix "-u0" name}-x" ] else [ name ];
  names = lib.unique (lib.concatMap clashing (lib.filter (name: name != "u0") ours));

  isRefused = name: lib.any (lib.hasInfix "Choose another") (messagesIn { } { users.${name} = { }; });
in
map (name: "a user may be called ${name}, which names a part of the box") (
  lib.filter (name: !isRefused name) names
)
++ lib.optional (lib.length names < 15) "only ${toString (lib.length names)} names were found"
