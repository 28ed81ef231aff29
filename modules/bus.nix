# What users may ask on the bus of the system. Whoever can log in can: systemd answers there
# for all processes, command lines included, whatever /proc hides, and lets users keep a
# manager of their own running, which is outside of any sandbox.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.services.agent-box;
  names = lib.attrNames cfg.users;

  # The states of units, which the settings show, and how they are described. All else is
  # root's, or tells of processes. A rule that allows names an interface: a message without one
  # is then not meant.
  allowed = {
    "DBus.Introspectable" = [ "Introspect" ];
    "DBus.Peer" = [ "Ping" ];
    "DBus.Properties" = [
      "Get"
      "GetAll"
    ];
    "systemd1.Manager" = [
      "GetUnit"
      "GetUnitFileState"
      "ListJobs"
      "ListUnitFiles"
      "ListUnits"
      "ListUnitsByNames"
      "ListUnitsByPatterns"
      "ListUnitsFiltered"
      "LoadUnit"
      "Subscribe"
      "Unsubscribe"
    ];
  };
  allow =
    interface: member:
    ''<allow send_destination="org.freedesktop.systemd1" send_interface="org.freedesktop.${interface}" send_member="${member}"/>'';

  # A name stands for whoever owns it, so that the number of a connection in its place changes
  # nothing. What is refused is named by path: the interface is the sender's to leave out.
  lines = [
    ''<deny send_destination="org.freedesktop.systemd1"/>''
  ]
  ++ lib.concatLists (lib.mapAttrsToList (interface: map (allow interface)) allowed)
  ++ [
    ''<deny send_destination="org.freedesktop.login1" send_path="/org/freedesktop/login1" send_member="SetUserLinger"/>''
  ];

  policyOf = name: ''
    <policy user="${name}">
    ${lib.concatMapStringsSep "\n" (line: "    ${line}") lines}
      </policy>
  '';
in
{
  options.services.agent-box = {
    busPolicy = mkOption {
      type = types.str;
      internal = true;
      readOnly = true;
      default = ''
        <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
          "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
        <busconfig>
        ${lib.concatMapStrings (name: "  ${policyOf name}") names}</busconfig>
      '';
      description = "Rules of the bus of the system about users.";
    };

    polkitRules = mkOption {
      type = types.str;
      internal = true;
      readOnly = true;
      # The same over sockets that no bus guards.
      default = ''
        polkit.addRule(function (action, subject) {
          if (/^org\.freedesktop\.login1\.set-(user|self)-linger$/.test(action.id)
              && ${builtins.toJSON names}.indexOf(subject.user) >= 0) {
            return polkit.Result.NO;
          }
        });
      '';
      description = "Rules of polkit about users.";
    };
  };

  config = lib.mkIf cfg.enable {
    services.dbus.packages = [
      (pkgs.writeTextDir "share/dbus-1/system.d/agent-box.conf" cfg.busPolicy)
    ];
    security.polkit.extraConfig = cfg.polkitRules;
  };
}
