# A login, over ssh for example, is outside of the user's sandbox. It has the limits of the user
# all the same, and ends with the last session: nothing of it stays, and nothing starts at boot.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.agent-box;
  hardening = import ./hardening { inherit lib; };

  orInfinity = value: if value == null then "infinity" else value;

  # In a unit a percent sign is the beginning of something else.
  settings =
    user:
    let
      limits = user.effectiveLimits.user;
    in
    lib.mapAttrsToList (name: value: "${name}=${lib.replaceStrings [ "%" ] [ "%%" ] (toString value)}") {
      CPUWeight = limits.cpuWeight;
      IOWeight = limits.ioWeight;
      MemoryMax = orInfinity limits.memoryMax;
      TasksMax = orInfinity limits.tasksMax;
    };

  # Who gets which number is only known on the machine. What is set holds for the slice
  # whenever there is one, and until the next boot.
  serviceOf = name: user: {
    description = "Limits of the logins of ${name}";
    wantedBy = [ "multi-user.target" ];
    before = [ "systemd-user-sessions.service" ];
    path = [
      pkgs.coreutils
      pkgs.systemd
    ];
    serviceConfig = hardening.daemon // {
      Type = "oneshot";
      RemainAfterExit = true;
      ExecStart = "${pkgs.bash}/bin/bash -euc 'number=\"$$(id -u ${name})\"; exec systemctl set-property --runtime \"user-$$number.slice\" ${lib.concatStringsSep " " (settings user)}'";
      # systemd listens there.
      InaccessiblePaths = hardening.messageSockets;
    };
  };
in
{
  config = lib.mkIf cfg.enable {
    systemd.services = lib.mapAttrs' (
      name: user: lib.nameValuePair "agent-box-logins-${name}" (serviceOf name user)
    ) cfg.users;

    # What an earlier version of the box, or somebody as root, has let them keep.
    services.agent-box.tmpfiles = lib.concatMap (
      name:
      lib.optional (
        (config.users.users.${name}.linger or null) != true
      ) "r /var/lib/systemd/linger/${name} - - - - -"
    ) (lib.attrNames cfg.users);
  };
}
