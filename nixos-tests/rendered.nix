# The part of an evaluated host that agent-box answers for, as plain strings with
# store paths still in them. The harness turns those into `@name@`.
{ lib, config }:
let
  cfg = config.services.agent-box;

  # Mounts are called by their path, `run-agent\\x2dbox\\x2dalice.mount`; the slices of all users
  # are below those of these names.
  isOurs =
    name:
    lib.hasPrefix "agent-box-" name
    || lib.hasPrefix "run-agent\\x2dbox" name
    || lib.elem name [
      "agent-box.slice"
      "agent.slice"
      "system.slice"
    ];
  isAutologin = name: config.services.getty.autologinUser != null && name == "serial-getty@.service";
  units = lib.filterAttrs (
    name: unit:
    unit.enable
    && (
      isOurs name
      || isAutologin name
      || (cfg.web.enable && name == "caddy.service")
      || (cfg.web.enable && cfg.web.fail2ban && name == "fail2ban.service")
    )
  ) config.systemd.units;

  # What only tells NixOS when to restart what: hashes, in place of the files themselves.
  isTrigger = line: builtins.match "X-(Restart|Reload)-Triggers=.*" line != null;
  withoutTriggers =
    text: lib.concatStringsSep "\n" (lib.filter (line: !isTrigger line) (lib.splitString "\n" text));

  # A unit that NixOS lays over one of a package.
  isDropin =
    name: unit: unit.overrideStrategy == "asDropin" || isAutologin name || name == "fail2ban.service";
  fileOf = name: unit: if isDropin name unit then "${name}.d/overrides.conf" else name;

  # The text of an /etc file, also where a module has a builder write it.
  textOf =
    path:
    let
      file = config.environment.etc.${path};
    in
    if file.text != null then file.text else file.source.text;

  etcPaths = lib.filter (
    path:
    (config.environment.etc.${path}.enable or false)
    && (
      lib.hasPrefix "agent-box/" path
      || lib.hasPrefix "agent-box-guides/" path
      || path == "caddy/Caddyfile"
      || path == "claude-code/managed-settings.json"
      || path == "codex/config.toml"
      || path == "fail2ban/fail2ban.local"
      || lib.hasPrefix "fail2ban/jail.d/agent-box" path
      || lib.hasPrefix "fail2ban/filter.d/agent-box" path
      || lib.hasPrefix "fail2ban/action.d/agent-box" path
      || path == "gitconfig"
      || path == "systemd/zram-generator.conf"
    )
  ) (lib.attrNames config.environment.etc);

  sysctl = lib.filterAttrs (
    name: _:
    lib.elem name [
      "vm.page-cluster"
      "vm.swappiness"
    ]
  ) config.boot.kernel.sysctl;

  accountOf =
    name: _:
    let
      user = config.users.users.${name};
    in
    {
      inherit (user)
        uid
        home
        homeMode
        group
        extraGroups
        ;
      inherit name;
      shell =
        if lib.isDerivation user.shell then "${user.shell}${user.shell.shellPath}" else toString user.shell;
      system = user.isSystemUser;
    };
in
{
  units = lib.mapAttrs' (
    name: unit: lib.nameValuePair (fileOf name unit) (withoutTriggers unit.text)
  ) units;
  wants = lib.filterAttrs (_: targets: targets != [ ]) (
    lib.mapAttrs (_: unit: unit.wantedBy ++ unit.requiredBy) units
  );
  etc =
    lib.genAttrs etcPaths textOf
    // {
      sudoers = config.security.sudo.configFile;
      "dbus-1/system.d/agent-box.conf" = cfg.busPolicy;
      "polkit-1/rules.d/10-agent-box.rules" = cfg.polkitRules;
    }
    // lib.optionalAttrs (cfg.diskRules != "") {
      "udev/rules.d/99-agent-box.rules" = cfg.diskRules;
    }
    // lib.optionalAttrs (cfg.tmpfiles != [ ]) {
      "tmpfiles.d/agent-box.conf" = lib.concatMapStrings (line: "${line}\n") cfg.tmpfiles;
    }
    // lib.optionalAttrs cfg.protectMemory {
      "sysctl.d/60-agent-box.conf" = lib.concatStrings (
        lib.mapAttrsToList (name: value: "${name} = ${toString value}\n") sysctl
      );
    };
  accounts = {
    users =
      lib.mapAttrsToList accountOf cfg.users
      ++ map (name: accountOf name null) (
        lib.optionals cfg.web.enable [
          "agent-box-gate"
          "agent-box-status"
          "caddy"
        ]
      );
    groups = lib.attrNames cfg.users;
  };
}
