# What one session and one user may take of the machine, and how users share what is not enough
# for all. Sizes are relative to the machine by default, so that one config fits a small box and
# a big one.
{ config, lib, ... }:
let
  inherit (lib) mkDefault mkOption types;
  cfg = config.services.agent-box;

  orInfinity = value: if value == null then "infinity" else value;

  # A dash in the name of a slice means "below": a user called `a-b` must not end up in
  # the slice of `a`.
  sliceOf = name: "agent-box-${lib.replaceStrings [ "-" ] [ "\\x2d" ] name}";

  sizeType = types.strMatching "([1-9][0-9]?|100)%|[1-9][0-9]*[KMGT]?" // {
    description = "size: a share of the RAM (\"60%\") or bytes (\"4G\")";
  };

  weightType = types.ints.between 1 10000;

  diskType = sizeType // {
    description = "size: a share of the file system (\"20%\") or bytes (\"50G\")";
  };

  # One that is not set is not touched: there may be limits that the machine has otherwise.
  diskMaxOption =
    nullMeans:
    mkOption {
      type = types.nullOr diskType;
      default = null;
      example = "50G";
      description = ''
        Most that a user may keep on the file system of the home, wherever on it. It takes one
        that counts by user: ext4 with its feature `quota` and the mount option `usrquota`, or
        xfs with `uquota`. On others `agent-box-quota.service` fails and says what to do.
        Null: ${nullMeans}.
      '';
    };

  weightOptions =
    { default, nullMeans }:
    {
      cpuWeight = mkOption {
        type = types.nullOr weightType;
        inherit default;
        example = 200;
        description = ''
          Part of the processors that a user gets when there are not enough for all, relative to
          the other users. Null: ${nullMeans}.
        '';
      };
      ioWeight = mkOption {
        type = types.nullOr weightType;
        inherit default;
        example = 200;
        description = ''
          Part of what the disks can do that a user gets when it is not enough for all, relative
          to the other users. It takes a scheduler that knows of it:
          {option}`services.agent-box.diskScheduler`. Null: ${nullMeans}.
        '';
      };
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

  # What users can expect together; the rest is the system's, and for whoever needs more.
  shared = 80;
  all = {
    description = "Agents of all users";
    sliceConfig.MemoryLow = "${toString shared}%";
  };
  severalUsers = lib.length (lib.attrNames cfg.users) > 1;
  share = lib.max 1 (shared / lib.length (lib.attrNames cfg.users));

  sliceOfUser =
    name: user:
    let
      limits = user.effectiveLimits.user;
    in
    lib.nameValuePair (sliceOf name) {
      description = "Agents of ${name}";
      sliceConfig = {
        CPUWeight = limits.cpuWeight;
        IOWeight = limits.ioWeight;
        MemoryMax = orInfinity limits.memoryMax;
        TasksMax = orInfinity limits.tasksMax;
      }
      // lib.optionalAttrs cfg.protectMemory { MemoryLow = "${toString share}%"; };
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
      }
      // weightOptions {
        default = 100;
        nullMeans = "100";
      }
      // {
        diskMax = diskMaxOption "no limit is set";
      };
    };

    diskScheduler = mkOption {
      type = types.nullOr (types.strMatching "[a-z0-9-]+");
      default = if severalUsers then "bfq" else null;
      defaultText = lib.literalMD "`bfq` where there are several users, else null";
      example = "none";
      description = ''
        Scheduler of all disks. `bfq` is the one that shares a disk by weight. Null: what the
        kernel takes by itself, which is faster on very fast disks and lets one user fill the
        queue for all.
      '';
    };

    diskRules = mkOption {
      type = types.str;
      internal = true;
      readOnly = true;
      default = lib.optionalString (cfg.diskScheduler != null) ''
        ACTION=="add|change", SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", KERNEL!="zram*|loop*", TEST=="queue/scheduler", ATTR{queue/scheduler}="${cfg.diskScheduler}"
      '';
      description = "Rules of udev about disks.";
    };

    userSlice = mkOption {
      type = types.functionTo types.str;
      internal = true;
      readOnly = true;
      default = name: "${sliceOf name}.slice";
      description = "Name of the slice of a user.";
    };

    besideSessions = mkOption {
      type = types.functionTo types.raw;
      internal = true;
      readOnly = true;
      default =
        name:
        {
          Slice = cfg.userSlice name;
          # Sessions that take all they can get never keep their user from ending them.
          CPUWeight = 400;
          IOWeight = 400;
        }
        // lib.optionalAttrs cfg.protectMemory { MemoryLow = "64M"; };
      description = ''
        Settings of a service that works for a user beside the sessions: it counts as the
        user's, and the sessions do not starve it.
      '';
    };

    users = mkOption {
      type = types.attrsOf (
        types.submodule (
          { config, ... }:
          {
            options.limits = {
              session = limitOptions (inherited "one session of this user");
              user =
                limitOptions (inherited "all that runs for this user together")
                // weightOptions {
                  default = null;
                  nullMeans = "the weight of the box";
                }
                // {
                  diskMax = diskMaxOption "the limit of the box";
                };
            };
            options.effectiveLimits = mkOption {
              type = types.raw;
              internal = true;
              readOnly = true;
              description = "The limits of the user with those of the box filled in.";
            };
            config.effectiveLimits = {
              session = resolve config.limits.session cfg.limits.session;
              user = lib.mapAttrs (
                name: value: if value == null && lib.hasSuffix "Weight" name then 100 else value
              ) (resolve config.limits.user cfg.limits.user);
            };
          }
        )
      );
    };
  };

  config = lib.mkIf cfg.enable {
    # The sandbox is not all that works for a user: supervisor, terminal, settings, codex
    # app-server and whatever else runs as the user are no part of it, and count all the same.
    systemd.slices =
      lib.mapAttrs' sliceOfUser cfg.users
      // lib.optionalAttrs cfg.protectMemory {
        # What is below is only as safe from others as what is above.
        agent = all;
        agent-box = all;
        # The edge, the gate and whatever else is the machine's own.
        system = {
          overrideStrategy = "asDropin";
          sliceConfig.MemoryLow = mkDefault "10%";
        };
      };

    services.udev.extraRules = cfg.diskRules;

    # Forks without end in sessions leave the supervisor, which has to end them, some.
    systemd.services = lib.mapAttrs' (
      name: user:
      let
        tasks = user.effectiveLimits.user.tasksMax;
      in
      lib.nameValuePair "agent-box-${name}" {
        serviceConfig.TasksMax = if tasks == null then "infinity" else tasks - tasks / 8;
      }
    ) cfg.users;
  };
}
