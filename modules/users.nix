# Accounts: one unprivileged Linux user, with a private group, per entry.
# The user is the trust boundary of the box.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.services.agent-box;
  userNames = lib.attrNames cfg.users;

  # Path segments of the box's web address, units and runtime directories of the box itself.
  # A user of that name would shadow one of them.
  takenNames = [
    "again"
    "api"
    "assets"
    "auth"
    "bans"
    "caddy"
    "codex"
    "connections"
    "first-boot"
    "gate"
    "local-channels"
    "login"
    "logout"
    "memory"
    "metadata"
    "names"
    "network"
    "notify"
    "processes"
    "quota"
    "relay"
    "root"
    "sessions"
    "settings"
    "site-files"
    "site-lists"
    "site-port"
    "sites"
    "static"
    "status"
    "sudo-probe"
    "terminal"
    "ttyd"
    "update"
    "webhook"
  ];

  # `agent-box-terminal-x.service` belongs to user `x`; the sandbox of a user
  # `terminal-x` would have the same name.
  takenPrefixes = [
    "agent-box-"
    "attention-"
    "bans-"
    "codex-"
    "connections-"
    "gate-"
    "logins-"
    "metadata-"
    "network-"
    "port-"
    "relay-"
    "settings-"
    "site-files-"
    "site-port-"
    "sites-"
    "supervisor-"
    "systemd-"
    "terminal-"
    "update-"
    "webhook-"
  ];

  # Every account and group that NixOS knows by number, `wheel` and `docker`
  # among them: an agent named like that would join the group.
  systemNames = lib.attrNames config.ids.uids ++ lib.attrNames config.ids.gids;

  # Groups whose members can become root, or reach the terminals of everybody as the edge does.
  mightyGroups = [
    "agent-box-gate"
    "caddy"
    "disk"
    "docker"
    "incus-admin"
    "kmem"
    "libvirtd"
    "lxd"
    "podman"
    "root"
    "shadow"
    "wheel"
  ];

  # The account as it comes out, whoever wrote what about it, and wherever.
  groupsOf =
    name:
    let
      account = config.users.users.${name};
      listed = lib.attrNames (
        lib.filterAttrs (_: group: lib.elem name (group.members or [ ])) config.users.groups
      );
    in
    lib.unique (lib.remove name ([ account.group ] ++ account.extraGroups ++ listed));

  # Entries of the daemon of Nix by which it trusts a user: a name, `@group` or `*`.
  trustedAs =
    name:
    lib.filter (
      entry:
      lib.elem entry [
        name
        "*"
        "@${name}"
      ]
      || lib.elem entry (map (group: "@${group}") (groupsOf name))
    ) (lib.unique (config.nix.settings.trusted-users or [ ]));

  isLegal = name: builtins.match "[a-z][a-z0-9_-]{0,30}" name != null;
  isTaken =
    name:
    lib.elem name (takenNames ++ systemNames)
    || lib.any (prefix: lib.hasPrefix prefix name) takenPrefixes;
in
{
  options.services.agent-box = {
    users = mkOption {
      type = types.attrsOf (
        types.submodule {
          options.extraGroups = mkOption {
            type = types.listOf types.str;
            default = [ ];
            example = [ "video" ];
            description = ''
              Further groups of the account. Membership in `wheel`, `docker` or the like
              hands root to the agent and undoes the sandbox.
            '';
          };
        }
      );
      default = { };
      example = lib.literalExpression ''
        {
          alice.sessions = {
            main = { };
            review.agent = "codex";
          };
          bob = { };
        }
      '';
      description = ''
        The users of the box. Each gets an unprivileged account with a private home and
        group, a sandbox, and a supervisor for its sessions. Users are kept apart from
        each other; the sessions of one user are not.
      '';
    };

    extraPackages = mkOption {
      type = types.listOf types.package;
      default = [ ];
      example = lib.literalExpression "with pkgs; [ nodejs uv ]";
      description = "Packages on every agent's PATH and on that of login shells.";
    };
  };

  config = lib.mkIf cfg.enable {
    assertions = [
      {
        assertion = cfg.users != { };
        message = "services.agent-box.users is empty: name at least one user, for example `services.agent-box.users.agent = { };`.";
      }
    ]
    ++ map (name: {
      assertion = isLegal name;
      message = "services.agent-box.users.\"${name}\": not a legal user name. Start with a lower-case letter and use at most 31 of a-z, 0-9, `_` and `-`.";
    }) userNames
    ++ map (name: {
      assertion = !isTaken name;
      message = "services.agent-box.users.\"${name}\": this name is reserved by the system or by agent-box itself. Choose another, for example `agent-${name}`.";
    }) userNames;

    warnings = lib.concatMap (
      name:
      map (
        group:
        "services.agent-box.users.${name}: members of `${group}` can become root or another user, which undoes the sandbox. Take ${name} out of extraGroups and of users.groups.${group}.members. Use sudoAllowlist for single commands."
      ) (lib.intersectLists mightyGroups (groupsOf name))
      ++ map (
        entry:
        "services.agent-box.users.${name}: who is in nix.settings.trusted-users (`${entry}`) can become root, which undoes the sandbox. Take ${name} out of it; with allowed-users alone, who builds with Nix is not trusted."
      ) (trustedAs name)
    ) userNames;

    users.users = lib.mapAttrs (name: user: {
      isNormalUser = true;
      group = name;
      inherit (user) extraGroups;
      home = "/home/${name}";
      homeMode = "0700";
      createHome = true;
      # Ids below the account's own are nobody that a rule by user would know, and new
      # privileges, which handing them out takes, a session does not get anyway. Rootless
      # containers of a login need them: a plain `true` in the host's config.
      autoSubUidGidRange = lib.mkOverride 900 false;
      # Above the default shell of the system, below a plain assignment in the
      # host's config.
      shell = lib.mkOverride 900 pkgs.bashInteractive;
    }) cfg.users;

    users.groups = lib.genAttrs userNames (_: { });
  };
}
