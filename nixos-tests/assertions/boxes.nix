# Boxes that the cases start from.
rec {
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
}
