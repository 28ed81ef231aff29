# The box updates itself: it moves the pins of the flake that it is built from, builds,
# switches, and notes the pins only once the new system runs.
{ config, lib, ... }:
let
  inherit (lib) mkOption types;
  cfg = config.services.agent-box;
  inherit (cfg) selfUpdate;
  hardening = import ./hardening { inherit lib; };

  mayUpdate = lib.filter (name: cfg.users.${name}.mayUpdate) (lib.attrNames cfg.users);

  # By the name that stays the same across generations: an update must not change the
  # unit that runs it.
  program = name: "/run/current-system/sw/bin/${name}";
  rebuild = action: [
    (program "nixos-rebuild")
    action
    "--flake"
    "{flake}#${selfUpdate.attribute}"
  ];

  document = {
    inherit (selfUpdate) flake input;
    users = mayUpdate;
    commands = {
      resolve = [
        (program "nix")
        "--extra-experimental-features"
        "nix-command flakes"
        "flake"
        "update"
        "--flake"
        "{flake}"
      ];
      build = rebuild "build";
      switch = rebuild "switch";
      stop = [
        (program "systemctl")
        "stop"
        "nixos-rebuild-switch-to-configuration.service"
      ];
      profile = [
        (program "nix-env")
        "--profile"
        "/nix/var/nix/profiles/system"
        "--set"
      ];
    };
  };

  removed =
    name:
    lib.mkRemovedOptionModule [ "services" "agent-box" "selfUpdate" name ] ''
      What a box is built from is pinned in the flake.lock of services.agent-box.selfUpdate.flake.
    '';
in
{
  imports = map removed [
    "agentNixpkgs"
    "agentPinFile"
    "pinFile"
    "repo"
    "rev"
  ];

  options.services.agent-box = {
    selfUpdate = {
      enable = lib.mkEnableOption "updates of the box that its users start from inside";

      flake = mkOption {
        type = types.str;
        default = "/etc/nixos";
        description = ''
          Folder of the flake that the box is built from. An update moves all of its inputs, so
          that the packages of the host advance too, and writes its {file}`flake.lock`.
        '';
      };

      attribute = mkOption {
        type = types.str;
        default = config.networking.hostName;
        defaultText = lib.literalExpression "config.networking.hostName";
        example = "box";
        description = "Name of the box in `nixosConfigurations` of the flake.";
      };

      input = mkOption {
        type = types.str;
        default = "agent-box";
        description = ''
          Input of the flake that this module comes from. An update is refused unless its new
          revision is built on the one that runs, for which GitHub is asked; of an input from
          elsewhere, as of all others, only the time must not go back.
        '';
      };

      hours = mkOption {
        type = types.ints.positive;
        default = 4;
        description = "Hours after which an update that has not ended is given up.";
      };

      document = mkOption {
        type = types.raw;
        internal = true;
        readOnly = true;
        description = "The part of box.json about updates.";
      };
    };

    users = mkOption {
      type = types.attrsOf (
        types.submodule {
          options.mayUpdate = mkOption {
            type = types.bool;
            default = lib.length (lib.attrNames cfg.users) == 1;
            defaultText = lib.literalMD "`true` where there is only one user";
            description = ''
              Let the user start an update of the box, with `agent-box-update start`. It may
              restart services of all users, though never a session.
            '';
          };
        }
      );
    };
  };

  config = lib.mkMerge [
    { services.agent-box.selfUpdate.document = if selfUpdate.enable then document else null; }

    (lib.mkIf (cfg.enable && selfUpdate.enable) {
      assertions = [
        {
          assertion = builtins.match "(/[^/[:space:]#?]+)+" selfUpdate.flake != null;
          message = "services.agent-box.selfUpdate.flake: \"${selfUpdate.flake}\" is no absolute path of a folder. Write it out, for example \"/etc/nixos\".";
        }
        {
          assertion = builtins.match "[A-Za-z0-9_-]+" selfUpdate.attribute != null;
          message = "services.agent-box.selfUpdate.attribute: \"${selfUpdate.attribute}\" is no name in nixosConfigurations. Write the one that you give to `nixos-rebuild --flake .#NAME`.";
        }
        {
          assertion = mayUpdate != [ ];
          message = "services.agent-box.selfUpdate: nobody may start an update. Set users.<name>.mayUpdate for one, or turn selfUpdate.enable off.";
        }
      ];

      # Connecting starts the update; nothing is said over it.
      systemd.sockets = lib.listToAttrs (
        map (
          name:
          lib.nameValuePair "agent-box-update-${name}" {
            description = "Updates of the box, for ${name}";
            wantedBy = [ "sockets.target" ];
            listenStreams = [ "/run/agent-box-update/${name}.sock" ];
            socketConfig = {
              Service = "agent-box-update.service";
              SocketUser = name;
              SocketMode = "0600";
              # Whoever asked while the update ran has been served by it.
              FlushPending = true;
              TriggerLimitIntervalSec = 0;
            };
          }
        ) mayUpdate
      );

      systemd.services = {
        agent-box-update = {
          description = "Update of the box";
          after = [ "network-online.target" ];
          wants = [ "network-online.target" ];
          # It runs while the system changes below it.
          restartIfChanged = false;
          unitConfig = {
            X-StopOnRemoval = false;
            StartLimitIntervalSec = 0;
          };
          path = [
            "/run/current-system/sw"
            "/run/wrappers"
          ];
          environment = {
            HOME = "/root";
            # Builds are the daemon's, which is not confined as this unit is.
            NIX_REMOTE = "daemon";
            XDG_CACHE_HOME = "/var/cache/agent-box-update";
          };
          serviceConfig = hardening.update selfUpdate.flake // {
            Type = "oneshot";
            ExecStart = "${cfg.runtime}/bin/agent-box-update-service";
            # However it ended, pins and system are brought in line.
            ExecStopPost = "${cfg.runtime}/bin/agent-box-update-service --recover";
            TimeoutStartSec = "${toString selfUpdate.hours}h";
            TimeoutStopSec = "5min";
            StateDirectory = "agent-box";
            StateDirectoryMode = "0755";
            CacheDirectory = "agent-box-update";
            SyslogIdentifier = "agent-box-update";
          };
        };

        # After a power cut in the middle of one.
        agent-box-update-recover = {
          description = "End of an update that was cut off";
          wantedBy = [ "multi-user.target" ];
          before = [ "agent-box-update.service" ];
          restartIfChanged = false;
          # Either is there from the start of an update on.
          unitConfig.ConditionPathExists = [
            "|/var/lib/agent-box/update.json"
            "|/var/lib/agent-box/update"
          ];
          path = [ "/run/current-system/sw" ];
          environment.NIX_REMOTE = "daemon";
          serviceConfig = hardening.update selfUpdate.flake // {
            Type = "oneshot";
            ExecStart = "${cfg.runtime}/bin/agent-box-update-service --recover";
            StateDirectory = "agent-box";
            StateDirectoryMode = "0755";
            SyslogIdentifier = "agent-box-update";
          };
        };
      };
    })
  ];
}
