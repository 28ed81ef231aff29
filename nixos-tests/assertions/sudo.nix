# Commands that agents may run as root.
_:
let
  inherit (import ./boxes.nix) sudo;
in
{
  refused = {
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
    "sudo without sudo" = {
      box = sudo "/run/current-system/sw/bin/reboot";
      surroundings.security.sudo.enable = false;
      remedy = "turn on security.sudo.enable";
    };
  };

  accepted = {
    "the sudo command of the README" = sudo "/run/current-system/sw/bin/systemctl reload caddy.service";
    "a sudo command with an escaped colon" = sudo "/run/current-system/sw/bin/true a\\:b";
    "a sudo command without arguments" = sudo "/run/current-system/sw/bin/reboot \"\"";
  };
}
