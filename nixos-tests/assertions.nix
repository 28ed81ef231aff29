# Configurations that the module must refuse, each with a word of the remedy that
# it must name, and some that it must accept. Evaluates to the list of what went
# wrong: empty is good.
#
#   nix-instantiate --eval --strict --json nixos-tests/assertions.nix --argstr nixpkgs PATH
{
  nixpkgs ? <nixpkgs>,
  lib ? import (nixpkgs + "/lib"),
  pkgs ? import nixpkgs { },
}:
let
  inherit (import ./module.nix { inherit lib pkgs; }) evaluate;

  # What the module says to `box`: refusals and warnings.
  evaluated =
    more: box:
    (evaluate [
      more
      {
        services.agent-box = {
          enable = true;
        }
        // box;
      }
    ]).config;

  messagesIn =
    more: box:
    map (check: check.message) (lib.filter (check: !check.assertion) (evaluated more box).assertions);

  user = {
    users.alice = { };
  };
  session = name: options: { users.alice.sessions.${name} = options; };
  sudo = command: user // { sudoAllowlist = [ command ]; };
  web =
    options:
    user
    // {
      web = {
        enable = true;
        domain = "box.example.com";
      }
      // options;
    };

  update =
    options:
    user
    // {
      selfUpdate = {
        enable = true;
      }
      // options;
    };

  refused = {
    "no user" = {
      box = { };
      remedy = "name at least one user";
    };
    "no agent" = {
      box = user // {
        installAgents = [ ];
      };
      remedy = "list at least one";
    };
    "default agent that is not installed" = {
      box = user // {
        agent = "codex";
        installAgents = [ "claude" ];
      };
      remedy = "add it to services.agent-box.installAgents";
    };
    "user name with a capital" = {
      box.users.Alice = { };
      remedy = "lower-case letter";
    };
    "user name that is too long" = {
      box.users.${lib.concatStrings (lib.replicate 32 "a")} = { };
      remedy = "at most 31";
    };
    "user named like the login service" = {
      box.users.gate = { };
      remedy = "Choose another";
    };
    "user named like a page" = {
      box.users.settings = { };
      remedy = "Choose another";
    };
    "user named like a supervisor unit" = {
      box.users.supervisor-alice = { };
      remedy = "Choose another";
    };
    "user named root" = {
      box.users.root = { };
      remedy = "Choose another";
    };
    "user named like the group of administrators" = {
      box.users.wheel = { };
      remedy = "Choose another";
    };
    "session name with a space" = {
      box = session "my work" { };
      remedy = "letter or a digit";
    };
    "session name with a leading dash" = {
      box = session "-x" { };
      remedy = "letter or a digit";
    };
    "session name with a leading underscore" = {
      box = session "_x" { };
      remedy = "letter or a digit";
    };
    "session name that is too long" = {
      box = session (lib.concatStrings (lib.replicate 151 "a")) { };
      remedy = "1 to 150";
    };
    "session with an agent that is not installed" = {
      box = session "main" { agent = "codex"; } // {
        installAgents = [ "claude" ];
      };
      remedy = "Add it to services.agent-box.installAgents";
    };
    "user with an agent that is not installed" = {
      box = {
        users.alice.agent = "pi";
        installAgents = [ "claude" ];
      };
      remedy = "Add it to services.agent-box.installAgents";
    };
    "empty Remote Control name" = {
      box = session "main" { remoteControlName = ""; };
      remedy = "Write null";
    };
    "Remote Control name of two lines" = {
      box.users.alice.remoteControlName = "a\nb";
      remedy = "Write null";
    };
    "working directory that is relative" = {
      box.users.alice.workingDirectory = "project";
      remedy = "Write it out";
    };
    "working directory of a session that is relative" = {
      box = session "main" { workingDirectory = "~/project"; };
      remedy = "Write it out";
    };
    "environment file that is relative" = {
      box = user // {
        environmentFiles = [ "agents.env" ];
      };
      remedy = "with a `-` before it";
    };
    "environment file of a user with a space" = {
      box.users.alice.environmentFiles = [ "/run/my secrets" ];
      remedy = "users.alice.environmentFiles";
    };
    "host of Remote Control names with a space" = {
      box = user // {
        remoteControlHost = "my box";
      };
      remedy = "without spaces";
    };
    "variable of the module" = {
      box.users.alice.environment.TMUX_TMPDIR = "/tmp";
      remedy = "Use extraPackages for PATH";
    };
    "sudo of a name without path" = {
      box = sudo "systemctl reload caddy.service";
      remedy = "Write it out";
    };
    "sudo of everything" = {
      box = sudo "ALL";
      remedy = "Write it out";
    };
    "sudo of a second command behind a comma" = {
      box = sudo "/run/current-system/sw/bin/true, ALL";
      remedy = "List each exact command";
    };
    "sudo of ALL as an argument" = {
      box = sudo "/run/current-system/sw/bin/true ALL";
      remedy = "List each exact command";
    };
    "sudo with a wildcard" = {
      box = sudo "/run/current-system/sw/bin/systemctl restart *";
      remedy = "List each exact command";
    };
    "sudo with a regular expression" = {
      box = sudo "/run/current-system/sw/bin/systemctl ^restart .+$";
      remedy = "List each exact command";
    };
    "sudo with an unescaped colon" = {
      box = sudo "/run/current-system/sw/bin/true a:b";
      remedy = "with a backslash";
    };
    "sudo of two lines" = {
      box = sudo "/run/current-system/sw/bin/true\n%users ALL=ALL";
      remedy = "List each exact command";
    };
    "sudo of a whole folder" = {
      box = sudo "/run/current-system/sw/bin/";
      remedy = "Write it out";
    };
    "sudo of a program in a home" = {
      box = sudo "/home/alice/bin/tool";
      remedy = "Put the program in the store";
    };
    "sudo of one user that is relative" = {
      box.users.alice.sudoAllowlist = [ "reboot" ];
      remedy = "Write it out";
    };
    "domain with a scheme" = {
      box = web { domain = "https://box.example.com"; };
      remedy = "without scheme, port or path";
    };
    "domain with a port" = {
      box = web { domain = "box.example.com:8443"; };
      remedy = "without scheme, port or path";
    };
    "domain with a capital" = {
      box = web { domain = "Box.example.com"; };
      remedy = "in lower case";
    };
    "domain with a dot at the end" = {
      box = web { domain = "box.example.com."; };
      remedy = "in lower case";
    };
    "domain that ends the site's line" = {
      box = web { domain = "box.example.com {\n}"; };
      remedy = "in lower case";
    };
    "origin without TLS" = {
      box = web { origins = [ "http://box.example.com" ]; };
      remedy = "without a slash at the end";
    };
    "origin with a slash" = {
      box = web { origins = [ "https://box.example.com/" ]; };
      remedy = "without a slash at the end";
    };
    "first user who does not exist" = {
      box = web { user = "carol"; };
      remedy = "Name one of: alice";
    };
    "first user without a workspace" = {
      box = lib.recursiveUpdate (web { user = "bob"; }) { users.bob.web.enable = false; };
      remedy = "Name one of: alice";
    };
    "nobody with a workspace" = {
      box = lib.recursiveUpdate (web { }) { users.alice.web.enable = false; };
      remedy = "Set users.<name>.web.enable";
    };
    "password file that is relative" = {
      box = lib.recursiveUpdate (web { }) { users.alice.web.passwordHashFile = "hash"; };
      remedy = "Write it out";
    };
    "password file with a colon" = {
      box = lib.recursiveUpdate (web { }) { users.alice.web.passwordHashFile = "/run/a:b"; };
      remedy = "Write it out";
    };
    "agent of watches that is not installed" = {
      box = web { } // {
        webhook.hookSessionAgent = "pi";
        installAgents = [ "claude" ];
      };
      remedy = "Add it to services.agent-box.installAgents";
    };
    "a second Caddy" = {
      box = web { };
      surroundings.services.caddy.enable = true;
      remedy = "Turn it off";
    };
    "user named like the gate's own unit" = {
      box.users.gate-unban = { };
      remedy = "Choose another";
    };
    "user named like a socket of updates" = {
      box.users.update-alice = { };
      remedy = "Choose another";
    };
    "updates of a flake that is relative" = {
      box = update { flake = "nixos"; };
      remedy = "Write it out";
    };
    "updates of an address" = {
      box = update { flake = "/etc/nixos#box"; };
      remedy = "absolute path of a folder";
    };
    "updates to a name with a dot" = {
      box = update { attribute = "box.example.com"; };
      remedy = "nixos-rebuild --flake .#NAME";
    };
    "updates that nobody may start" = {
      box = lib.recursiveUpdate (update { }) { users.alice.mayUpdate = false; };
      remedy = "Set users.<name>.mayUpdate";
    };
    "updates by a pin file" = {
      box = update { pinFile = "/etc/nixos/pin.nix"; };
      remedy = "pinned in the flake.lock";
    };
    "user named like a question to the gate" = {
      box.users.auth = { };
      remedy = "Choose another";
    };
    "sudo without sudo" = {
      box = sudo "/run/current-system/sw/bin/reboot";
      surroundings.security.sudo.enable = false;
      remedy = "turn on security.sudo.enable";
    };
  };

  warned = {
    "a user who can become root" = {
      box.users.alice.extraGroups = [ "docker" ];
      remedy = "Use sudoAllowlist";
    };
    "the package of one agent" = {
      box = user // {
        package = pkgs.hello;
      };
      remedy = "write services.agent-box.packages.claude";
    };
  };

  accepted = {
    "environment files" = {
      environmentFiles = [ "-/run/secrets/agents.env" ];
      users.alice.environmentFiles = [ "/run/secrets/alice.env" ];
    };
    "a user and nothing else" = user;
    "a shell as seed" = session "main" { agent = "shell"; } // {
      installAgents = [ "codex" ];
      agent = "codex";
    };
    "a browser" = web { };
    "updates by the only user" = update { };
    "a browser for one of two" = lib.recursiveUpdate (web { }) { users.bob.web.enable = false; };
    "a second issuer of certificates" = web {
      acmeFallbackDirectory = "https://acme.zerossl.com/v2/DV90";
    };
    "a browser on another port" = web { origins = [ "https://box.example.com:8443" ]; };
    "webhooks of a repository of one's own" = web { } // {
      webhook = {
        repo = "example/local-channels";
        hookSessionAgent = "claude";
        watchPolicy."github:example/*".ignoreSenders = [ "@self" ];
      };
    };
    "another agent" = session "main" { agent = "gemini"; } // {
      agentCatalogue.gemini = {
        package = "hello";
        program = "hello";
      };
    };
    "the longest names" = session (lib.concatStrings (lib.replicate 150 "a")) { };
    "the sudo command of the README" = sudo "/run/current-system/sw/bin/systemctl reload caddy.service";
    "a sudo command with an escaped colon" = sudo "/run/current-system/sw/bin/true a\\:b";
    "a sudo command without arguments" = sudo "/run/current-system/sw/bin/reboot \"\"";
  };

  # Ports that the firewall opens.
  opened = {
    "HTTPS alone" = {
      web = { };
      tcp = [ 443 ];
      udp = [ ];
    };
    "HTTP, which leads to HTTPS" = {
      web.redirectHttp = true;
      tcp = [
        443
        80
      ];
      udp = [ ];
    };
    "HTTP/3" = {
      web.http3 = true;
      tcp = [ 443 ];
      udp = [ 443 ];
    };
  };

  # What must not be there at all, with a setting that leaves it out.
  absent = {
    "webhooks that are turned off" = lib.recursiveUpdate (web { }) { webhook.enable = false; };
    "webhooks of a box without a browser" = user;
    "webhooks of a user without a workspace" = lib.recursiveUpdate (web { }) {
      users.bob.web.enable = false;
    };
  };

  judgeAbsent =
    name: box:
    let
      # Names of units are all that counts here.
      config = evaluated { } (box // { hideProcesses = false; });
      of = if box ? users.bob then "bob" else "";
      namesOf = kind: lib.attrNames (config.systemd.${kind} or { });
      units = lib.filter (lib.hasPrefix "agent-box-webhook-${of}") (
        namesOf "services" ++ namesOf "sockets"
      );
      route = lib.hasInfix "agent-box-webhook/${of}" (
        config.environment.etc."caddy/Caddyfile".text or ""
      );
      document = config.services.agent-box.webhookDocument;
      users = if document == null then [ ] else lib.attrNames document.users;
      listed = if of == "" then users != [ ] else lib.elem of users;
    in
    lib.optional (
      units != [ ] || route || listed
    ) "${name}: found ${builtins.toJSON units}, route ${lib.boolToString route}";

  judgeOpened =
    name: case:
    let
      config = evaluated { } (web case.web);
      inherit (config.networking) firewall;
      found = {
        tcp = firewall.allowedTCPPorts;
        udp = firewall.allowedUDPPorts;
      };
    in
    lib.optional (
      found != { inherit (case) tcp udp; }
    ) "${name}: the firewall opens ${builtins.toJSON found}";

  judgeRefused =
    name: case:
    let
      messages = messagesIn (case.surroundings or { }) case.box;
    in
    lib.optional (
      !lib.any (lib.hasInfix case.remedy) messages
    ) "${name}: expected a refusal with `${case.remedy}`, got ${builtins.toJSON messages}";

  judgeWarned =
    name: case:
    let
      inherit (evaluated { } case.box) warnings;
    in
    lib.optional (
      !lib.any (lib.hasInfix case.remedy) warnings
    ) "${name}: expected a warning with `${case.remedy}`, got ${builtins.toJSON warnings}";

  judgeAccepted =
    name: box:
    let
      messages = messagesIn { } box ++ (evaluated { } box).warnings;
    in
    lib.optional (messages != [ ]) "${name}: met ${builtins.toJSON messages}";
in
lib.concatLists (lib.mapAttrsToList judgeRefused refused)
++ lib.concatLists (lib.mapAttrsToList judgeWarned warned)
++ lib.concatLists (lib.mapAttrsToList judgeAccepted accepted)
++ lib.concatLists (lib.mapAttrsToList judgeAbsent absent)
++ lib.concatLists (lib.mapAttrsToList judgeOpened opened)
