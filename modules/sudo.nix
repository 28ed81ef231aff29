# The only elevated power of an agent: exact commands, as root, without a password.
{ config, lib, ... }:
let
  inherit (lib) mkOption types;
  cfg = config.services.agent-box;

  commandsType = types.listOf types.str;

  # sudoers reads a path alone as "with any arguments". Exact means exact: no
  # arguments unless the entry lists them, written `""` in sudoers.
  exact = command: if lib.hasInfix " " command then command else "${command} \"\"";

  words =
    command: lib.filter (word: word != "") (lib.splitString " " (lib.removeSuffix " \"\"" command));

  # Wildcards, regular expressions, negation, comments, quotes and line breaks
  # have no place in an exact command; `,` `:` `=` `\` separate in sudoers and
  # are data only behind a backslash.
  isPlain =
    command:
    builtins.match "([^][*?!#\"'^$\n\r\t\\\\,:=]|\\\\[,:=\\\\])+" (lib.removeSuffix " \"\"" command)
    != null;

  isAbsolute = command: builtins.match "(/[^/ ]+)+( .*)?" command != null;

  # Folders that an agent can write: what lies there can be replaced.
  isOutOfReach =
    command:
    !lib.any (folder: lib.hasPrefix folder command) [
      "/home/"
      "/tmp/"
      "/var/tmp/"
      "/dev/shm/"
      "/run/agent-box-"
    ]
    && !lib.hasInfix "/../" command;

  checksOf = where: command: [
    {
      assertion = isAbsolute command;
      message = "${where}: \"${command}\" does not start with the absolute path of a program. Write it out, for example \"/run/current-system/sw/bin/systemctl reload caddy.service\".";
    }
    {
      assertion = isPlain command && !lib.elem "ALL" (words command);
      message = "${where}: \"${command}\" holds ALL, a wildcard or another special character of sudoers. List each exact command, and write `,` `:` `=` and `\\` of an argument with a backslash before it.";
    }
    {
      assertion = isOutOfReach command;
      message = "${where}: \"${command}\" runs a program that an agent could replace. Put the program in the store or under /run/current-system.";
    }
  ];
in
{
  options.services.agent-box = {
    sudoAllowlist = mkOption {
      type = commandsType;
      default = [ ];
      example = [ "/run/current-system/sw/bin/systemctl reload caddy.service" ];
      description = ''
        Commands that every user may run as root by `sudo` without a password, exactly as
        written: no other arguments, no environment, no `sudoedit`. The whole list of a user
        is the whole of its elevated power, and while it is empty the sandbox runs with
        `NoNewPrivileges`. The system bus is hidden from such commands, as from all of the
        sandbox: `systemctl` works, `hostnamectl` does not.
      '';
    };

    users = mkOption {
      type = types.attrsOf (
        types.submodule (
          { config, ... }:
          {
            options.sudoAllowlist = mkOption {
              type = commandsType;
              default = [ ];
              example = [ "/run/current-system/sw/bin/systemctl restart my-app.service" ];
              description = "Commands of this user alone, added to {option}`services.agent-box.sudoAllowlist`.";
            };
            options.effectiveSudo = mkOption {
              type = commandsType;
              internal = true;
              readOnly = true;
              description = "All commands of the user, in the form that goes into sudoers.";
            };
            config.effectiveSudo = lib.unique (map exact (cfg.sudoAllowlist ++ config.sudoAllowlist));
          }
        )
      );
    };
  };

  config = lib.mkIf cfg.enable {
    assertions =
      lib.concatMap (checksOf "services.agent-box.sudoAllowlist") cfg.sudoAllowlist
      ++ lib.concatLists (
        lib.mapAttrsToList (
          name: user:
          lib.concatMap (checksOf "services.agent-box.users.${name}.sudoAllowlist") user.sudoAllowlist
        ) cfg.users
      )
      ++ [
        {
          assertion =
            config.security.sudo.enable || lib.all (user: user.effectiveSudo == [ ]) (lib.attrValues cfg.users);
          message = "services.agent-box has a sudoAllowlist, but security.sudo is off: turn on security.sudo.enable or empty the list.";
        }
      ];

    security.sudo.extraRules = lib.concatLists (
      lib.mapAttrsToList (
        name: user:
        lib.optional (user.effectiveSudo != [ ]) {
          users = [ name ];
          # As root only. The default of NixOS would also allow `sudo -u <other user>`.
          runAs = "root";
          commands = map (command: {
            inherit command;
            options = [
              "NOPASSWD"
              "NOSETENV"
            ];
          }) user.effectiveSudo;
        }
      ) cfg.users
    );
  };
}
