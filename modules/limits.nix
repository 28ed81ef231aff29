# What one session and one user may take of the machine. Sizes are relative to
# the machine by default, so that one config fits a small box and a big one.
{ config, lib, ... }:
let
  inherit (lib) mkOption types;
  cfg = config.services.agent-box;

  orInfinity = value: if value == null then "infinity" else value;

  # A dash in the name of a slice means "below": a user called `a-b` must not end up in
  # the slice of `a`.
  sliceOf = name: "agent-box-${lib.replaceStrings [ "-" ] [ "\\x2d" ] name}";

  sizeType = types.strMatching "([1-9][0-9]?|100)%|[1-9][0-9]*[KMGT]?" // {
    description = "size: a share of the RAM (\"60%\") or bytes (\"4G\")";
  };

  # The same two limits for a session and for a user, for the box and for one user.
  limitOptions =
    {
      subject,
      memoryMax,
      tasksMax,
      nullMeans,
    }:
    {
      memoryMax = mkOption {
        type = types.nullOr sizeType;
        default = memoryMax;
        example = "4G";
        description = ''
          Most memory that ${subject} may use, as a share of the RAM or in bytes. A session
          that needs more is killed and respawned; others live. Null: ${nullMeans}.
        '';
      };
      tasksMax = mkOption {
        type = types.nullOr types.ints.positive;
        default = tasksMax;
        example = 4096;
        description = "Most processes and threads that ${subject} may have. Null: ${nullMeans}.";
      };
    };

  inherited = subject: {
    inherit subject;
    memoryMax = null;
    tasksMax = null;
    nullMeans = "the limit of the box";
  };

  # A value of the user, or else that of the box.
  resolve =
    own: box: lib.mapAttrs (name: value: if own.${name} == null then value else own.${name}) box;
in
{
  options.services.agent-box = {
    limits = {
      # Less than a user has, so that a runaway session leaves its siblings room.
      session = limitOptions {
        subject = "one session";
        memoryMax = "60%";
        tasksMax = 2048;
        nullMeans = "no limit";
      };
      # Less than the machine has, so that the system itself keeps answering.
      user = limitOptions {
        subject = "all that runs for one user, sessions and codex app-server together,";
        memoryMax = "80%";
        tasksMax = 8192;
        nullMeans = "no limit";
      };
    };

    userSlice = mkOption {
      type = types.functionTo types.str;
      internal = true;
      readOnly = true;
      default = name: "${sliceOf name}.slice";
      description = "Name of the slice of a user.";
    };

    users = mkOption {
      type = types.attrsOf (
        types.submodule (
          { config, ... }:
          {
            options.limits = {
              session = limitOptions (inherited "one session of this user");
              user = limitOptions (inherited "all that runs for this user together");
            };
            options.effectiveLimits = mkOption {
              type = types.raw;
              internal = true;
              readOnly = true;
              description = "The limits of the user with those of the box filled in.";
            };
            config.effectiveLimits = {
              session = resolve config.limits.session cfg.limits.session;
              user = resolve config.limits.user cfg.limits.user;
            };
          }
        )
      );
    };
  };

  config = lib.mkIf cfg.enable {
    # The sandbox is not all that works for a user: the codex app-server is no part of it.
    systemd.slices = lib.mapAttrs' (
      name: user:
      lib.nameValuePair (sliceOf name) {
        description = "Agents of ${name}";
        sliceConfig = {
          MemoryMax = orInfinity user.effectiveLimits.user.memoryMax;
          TasksMax = orInfinity user.effectiveLimits.user.tasksMax;
        };
      }
    ) cfg.users;
  };
}
