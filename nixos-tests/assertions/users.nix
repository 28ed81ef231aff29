# Users, their agents and sessions.
{ lib, pkgs }:
let
  inherit (import ./boxes.nix) session user;
in
{
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
    "two initial prompts" = {
      box.users.alice.sessions.main = {
        initialPrompt = "Begin.";
        initialPromptFile = "/run/secrets/task";
      };
      remedy = "Keep one of them";
    };
    "initial prompt in a file with a relative path" = {
      box.users.alice.sessions.main.initialPromptFile = "secrets/task";
      remedy = "/run/secrets/alice-task";
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
    "account that there is not, for metadata" = {
      box = user // {
        metadataUsers = [ "cwagent" ];
      };
      remedy = "declare it in users.users";
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
    "user named like the gate's own unit" = {
      box.users.gate-unban = { };
      remedy = "Choose another";
    };
    "user named like a socket of updates" = {
      box.users.update-alice = { };
      remedy = "Choose another";
    };
    "user named like a question to the gate" = {
      box.users.auth = { };
      remedy = "Choose another";
    };
  };

  warned = {
    "a user who can become root" = {
      box.users.alice.extraGroups = [ "docker" ];
      remedy = "Use sudoAllowlist";
    };
    "a user whom the host puts into a group of root" = {
      box = user;
      surroundings.users.users.alice.extraGroups = [ "wheel" ];
      remedy = "members of `wheel`";
    };
    "a user whom a group of root lists" = {
      box = user;
      surroundings.users.groups.docker.members = [ "alice" ];
      remedy = "members of `docker`";
    };
    "a user whom the daemon of Nix trusts" = {
      box = user;
      surroundings.nix.settings.trusted-users = [ "alice" ];
      remedy = "(`alice`) can become root";
    };
    "a user whom it trusts with a group" = {
      box.users.alice.extraGroups = [ "builders" ];
      surroundings.nix.settings.trusted-users = [ "@builders" ];
      remedy = "(`@builders`) can become root";
    };
    "everybody whom it trusts" = {
      box = user;
      surroundings.nix.settings.trusted-users = [ "*" ];
      remedy = "(`*`) can become root";
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
    "root for metadata" = user // {
      metadataUsers = [ "root" ];
    };
    "a shell as seed" = session "main" { agent = "shell"; } // {
      installAgents = [ "codex" ];
      agent = "codex";
    };
    "another agent" = session "main" { agent = "gemini"; } // {
      agentCatalogue.gemini = {
        package = "hello";
        program = "hello";
      };
    };
    "the longest names" = session (lib.concatStrings (lib.replicate 150 "a")) { };
  };
}
