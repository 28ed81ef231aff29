# The directories below /run that a user's programs can write to, each a file system of its own.
# /run itself is shared by the whole machine: whoever filled it, with bytes or with files, would
# keep everybody from signing in and every session from starting.
{
  config,
  lib,
  utils,
  ...
}:
let
  cfg = config.services.agent-box;

  hasCodex = lib.elem "codex" cfg.installAgents;
  userNames = lib.attrNames cfg.users;

  hasTerminals = name: cfg.web.enable && lib.elem name cfg.web.users;

  # The codex app-server has a directory for the notes of sessions beside that of the sandbox,
  # and the terminals in the browser one for their socket.
  directoriesOf =
    name:
    [ "/run/agent-box-${name}" ]
    ++ lib.optional hasCodex "/run/agent-box-codex/${name}"
    ++ lib.optional (hasTerminals name) "/run/agent-box-ttyd/${name}";

  mountOf = name: where: {
    inherit where;
    what = "tmpfs";
    type = "tmpfs";
    # Sockets, what sessions are started with (a prompt may have megabytes), and notes.
    options = "mode=0700,nosuid,nodev,noexec,size=64M,nr_inodes=8192";
    description = "Runtime directory of the agents of ${name}";
    unitConfig = {
      DefaultDependencies = false;
      # One that is in use already stays what it is until the next boot: below a new one nobody
      # would find the sockets of what runs.
      ConditionPathExists = "!${where}";
    };
    conflicts = [ "umount.target" ];
    before = [ "umount.target" ];
  };

  # Whatever makes the directories. They come first, and a machine without them works as well.
  after =
    name:
    let
      mounts = map (where: "${utils.escapeSystemdPath where}.mount") (directoriesOf name);
    in
    {
      wants = mounts;
      after = mounts;
    };

  unitsOf =
    name:
    [
      "agent-box-${name}"
      "agent-box-supervisor-${name}"
    ]
    ++ lib.optional hasCodex "agent-box-codex-${name}"
    ++ lib.optional (hasTerminals name) "agent-box-terminal-${name}";
in
{
  config = lib.mkIf cfg.enable {
    systemd.mounts = lib.concatMap (name: map (mountOf name) (directoriesOf name)) userNames;
    systemd.services = lib.mkMerge (
      map (name: lib.genAttrs (unitsOf name) (_: after name)) userNames
    );
  };
}
