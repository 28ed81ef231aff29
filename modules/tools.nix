# What agents and people find on the PATH of a session.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.agent-box;

  # The looks of a stock server, so that an agent does not spend its time
  # installing basics.
  baseTools = with pkgs; [
    gawk
    diffutils
    patch
    less
    file
    jq
    ripgrep
    gnutar
    gzip
    bzip2
    xz
    zip
    unzip
    curl
    wget
    openssh
    rsync
    iputils
    iproute2
    dnsutils
    netcat-gnu
    openssl
    gnupg
    procps
    psmisc
    util-linux
    python3
    nano
  ];

  agents = map (name: cfg.packages.${name}) cfg.installAgents;
in
{
  options.services.agent-box.sessionPath = lib.mkOption {
    type = lib.types.functionTo (lib.types.listOf (lib.types.either lib.types.package lib.types.str));
    internal = true;
    readOnly = true;
    description = "PATH of the sessions of a user, as a function of the user's name.";
  };

  config = lib.mkIf cfg.enable {
    # The profile comes first, as its root: agents keep the PATH they started
    # with, and `nix profile add` must show without a restart.
    services.agent-box.sessionPath =
      user:
      [
        "/home/${user}/.nix-profile"
        config.nix.package
      ]
      ++ agents
      ++ [
        pkgs.bubblewrap
        pkgs.tmux
        pkgs.which
        cfg.runtime
      ]
      ++ baseTools
      ++ cfg.extraPackages
      ++ [
        pkgs.bashInteractive
        pkgs.coreutils
        pkgs.git
        pkgs.gh
      ]
      # sudo works from there only, and is no use without a list.
      ++ lib.optional (cfg.users.${user}.effectiveSudo != [ ]) "/run/wrappers";

    environment.systemPackages =
      agents
      ++ [
        cfg.runtime
        pkgs.bubblewrap
        pkgs.gh
        pkgs.git
        pkgs.tmux
        pkgs.which
      ]
      ++ baseTools
      ++ cfg.extraPackages;

    # A GH_TOKEN in the env file is enough for git as well.
    programs.git = {
      enable = true;
      config.credential = lib.genAttrs [ "https://github.com" "https://gist.github.com" ] (_: {
        # The empty one ends the search for other helpers.
        helper = [
          ""
          "${pkgs.gh}/bin/gh auth git-credential"
        ];
      });
    };

    # Agents install tools with `nix profile add`.
    nix.settings.experimental-features = [
      "nix-command"
      "flakes"
    ];
  };
}
