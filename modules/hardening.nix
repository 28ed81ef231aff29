# Hardening of our units as plain attrsets of serviceConfig, one per class of unit.
# `base` is what every class shares. A setting that is weaker than it could be
# names the tool that the stronger one breaks.
{ lib }:
rec {
  # Addresses where clouds hand out credentials of the machine.
  metadataAddresses = [
    "169.254.169.254" # AWS, Google, Azure, DigitalOcean, Hetzner and most others
    "169.254.170.2" # AWS container credentials
    "169.254.170.23" # AWS pod identity
    "169.254.42.42" # Scaleway
    "100.100.100.200" # Alibaba
    "192.0.0.192" # Oracle
    "fd00:ec2::254" # AWS over IPv6
    "fd00:ec2::23" # AWS pod identity over IPv6
    "fd00:c1::a9fe:a9fe" # Oracle over IPv6
    "fd20:ce::254" # Google over IPv6
    "fd00:42::42" # Scaleway over IPv6
  ];

  # The system bus leads to systemd, logind and whatever else listens; the same
  # services listen on sockets of their own, too.
  messageSockets = [
    "-/run/dbus"
  ]
  ++ map (name: "-/run/systemd/io.systemd.${name}") [
    "AskPassword"
    "Credentials"
    "FactoryReset"
    "Hostname"
    "JournalAccess"
    "Login"
    "ManagedOOM"
    "Manager"
    "MuteConsole"
    "SysInstall"
    "sysext"
  ];

  # What holds for every unit of the box.
  common = {
    UMask = "0077";
    KeyringMode = "private";
    LockPersonality = true;
    PrivateDevices = true;
    PrivateTmp = true;
    PrivateIPC = true;
    ProtectClock = true;
    ProtectKernelLogs = true;
    ProtectKernelModules = true;
    ProtectKernelTunables = true;
    ProtectSystem = "strict";
    RestrictRealtime = true;
    # Also makes openat2 "not implemented", which bwrap and tar must be able to do
    # without: those of nixpkgs are.
    RestrictSUIDSGID = true;
    SystemCallArchitectures = "native";
    SystemCallErrorNumber = "EPERM";

    # Shared memory of their own: names in /dev/shm tell what others run.
    TemporaryFileSystem = [ "/dev/shm:mode=1777,nosuid,nodev" ];

    # Only their own processes exist for them.
    ProtectProc = "invisible";

    InaccessiblePaths = messageSockets ++ [ "-/run/systemd/private" ];
  };

  base =
    user:
    common
    // {
      # Neither other homes nor /run/user, where the user's own bus lives: a
      # process started over that bus would be outside of the sandbox.
      ProtectHome = "tmpfs";
      BindPaths = [ "/home/${user}" ];
      # ps, pgrep and strace need the rest of /proc.
      ProcSubset = "all";
    };

  # Services that run nothing but our own code.
  closed = {
    NoNewPrivileges = true;
    CapabilityBoundingSet = "";
    ProtectControlGroups = true;
    ProtectHostname = true;
    RemoveIPC = true;
    RestrictNamespaces = true;
    RestrictAddressFamilies = [ "AF_UNIX" ];
    IPAddressDeny = "any";
    SystemCallFilter = [
      "@system-service"
      "~@privileged @resources"
    ];
    MemoryDenyWriteExecute = true;
  };

  # Services with an account of their own and no business in any home.
  daemon =
    common
    // closed
    // {
      ProtectHome = true;
      ProcSubset = "pid";
    };

  # The login service: sockets that systemd opened, and its own state.
  gate = daemon // {
    PrivateNetwork = true;
    PrivateUsers = true;
  };

  # Asks the cloud for notices, tells sessions by their supervisors, and ends units as
  # root over systemd's own socket.
  notify = daemon // {
    # The directories of the supervisors' sockets are closed to others.
    CapabilityBoundingSet = "CAP_DAC_OVERRIDE";
    RestrictAddressFamilies = [
      "AF_INET"
      "AF_INET6"
      "AF_UNIX"
    ];
    IPAddressAllow = [
      "169.254.169.254"
      "fd00:ec2::254"
    ];
    InaccessiblePaths = messageSockets;
  };

  # Sets the first password and looks at the box from outside, as root: sockets and an
  # address of this machine, then an address that the launch named.
  firstBoot = daemon // {
    CapabilityBoundingSet = "CAP_DAC_OVERRIDE";
    RestrictAddressFamilies = [
      "AF_INET"
      "AF_INET6"
      "AF_UNIX"
    ];
    IPAddressDeny = metadataAddresses;
    ReadWritePaths = [ "-/var/lib/agent-box-launch" ];
  };

  # Loads rules into the firewall.
  firewall =
    common
    // closed
    // {
      CapabilityBoundingSet = "CAP_NET_ADMIN";
      RestrictAddressFamilies = [ "AF_NETLINK" ];
      ProtectHome = true;
    };

  # Reads the journal and bans as root. What nixpkgs closes already is not repeated.
  bans = {
    inherit (common)
      KeyringMode
      LockPersonality
      PrivateIPC
      ProtectClock
      ProtectKernelLogs
      ProtectProc
      RestrictRealtime
      RestrictSUIDSGID
      SystemCallArchitectures
      SystemCallErrorNumber
      UMask
      ;
    inherit (closed) IPAddressDeny MemoryDenyWriteExecute RestrictNamespaces;
    SystemCallFilter = [
      "@system-service"
      "~@resources"
    ];
    # It looks up the addresses of the machine itself, which are never banned.
    RestrictAddressFamilies = [
      "AF_INET"
      "AF_INET6"
      "AF_NETLINK"
      "AF_UNIX"
    ];
  };

  # Lifts bans as root: removes files of the gate and asks fail2ban.
  unban = daemon // {
    CapabilityBoundingSet = "CAP_DAC_OVERRIDE";
    PrivateNetwork = true;
  };

  # Renders sites as root: takes lists from sockets, opens no path of a user. It has Caddy
  # check and load what it wrote, and systemd open sockets for ports.
  sites = daemon // {
    CapabilityBoundingSet = [
      "CAP_CHOWN"
      "CAP_DAC_OVERRIDE"
    ];
    InaccessiblePaths = messageSockets;
    PrivateNetwork = true;
    # It gives files to the group of their reader.
    SystemCallFilter = [
      "@system-service"
      "~@resources"
    ];
  };

  # Between the edge and a port of a user: dials this machine and nothing else, as the user.
  sitePort = daemon // {
    RestrictAddressFamilies = [
      "AF_INET"
      "AF_INET6"
      "AF_UNIX"
    ];
    IPAddressAllow = "localhost";
  };

  # The edge: the only one that the network reaches.
  edge = daemon // {
    AmbientCapabilities = "CAP_NET_BIND_SERVICE";
    CapabilityBoundingSet = "CAP_NET_BIND_SERVICE";
    RestrictAddressFamilies = [
      "AF_INET"
      "AF_INET6"
      "AF_UNIX"
    ];
    IPAddressDeny = metadataAddresses;
    # The length of the queue of new connections is in /proc/sys.
    ProcSubset = "all";
  };

  # Updates of the box, as root: asks for builds, sets the profile of the system, has
  # systemd switch to it, all of it by sockets and below /nix/var.
  update =
    flake:
    common
    // {
      NoNewPrivileges = true;
      CapabilityBoundingSet = [
        "CAP_CHOWN"
        "CAP_DAC_OVERRIDE"
        "CAP_FOWNER"
      ];
      ProtectControlGroups = true;
      # nix reads settings and credentials of root there.
      ProtectHome = "read-only";
      ProtectHostname = true;
      RestrictNamespaces = true;
      ReadWritePaths = [
        "-/nix/var"
        "-${flake}"
      ];
      RestrictAddressFamilies = [
        "AF_INET"
        "AF_INET6"
        "AF_NETLINK"
        "AF_UNIX"
      ];
      IPAddressDeny = metadataAddresses;
      # systemd switches, and is asked over its sockets.
      InaccessiblePaths = [ ];
      # nix reads /proc/self/mountinfo and the like.
      ProcSubset = "all";
      # With @resources: an evaluation takes a larger stack.
      SystemCallFilter = [ "@system-service" ];
    };

  # Workspace and settings of a user: files of the user, the supervisor's socket.
  workspace =
    user:
    base user
    // closed
    // {
      # The settings show the state of units, which the bus tells everybody, and the
      # certificate that the edge on this machine answers with.
      InaccessiblePaths = lib.remove "-/run/dbus" messageSockets ++ [ "-/run/systemd/private" ];
      RestrictAddressFamilies = [
        "AF_INET"
        "AF_UNIX"
      ];
      IPAddressAllow = "127.0.0.1";
    };

  # The receiver of a user's webhooks: files of the user, the sockets of the supervisor
  # and of plugin processes. It sees processes of the user, to tell who is gone.
  webhook = user: base user // closed // { PrivateNetwork = true; };

  # Folders of a user that are sites: reads files, never writes any.
  siteFiles =
    user:
    base user
    // closed
    // {
      BindPaths = [ ];
      BindReadOnlyPaths = [ "/home/${user}" ];
      PrivateNetwork = true;
    };

  # The tmux server of a user and every pane in it.
  sandbox =
    {
      user,
      sudo,
      allowCloudMetadata,
    }:
    base user
    // {
      # sudo is setuid: the kernel ignores that under NoNewPrivileges.
      NoNewPrivileges = !sudo;
      # What sudo itself uses and what a command may need as root; without sudo nothing.
      # bwrap gets capabilities inside a user namespace of its own, which this does
      # not limit.
      CapabilityBoundingSet =
        if sudo then
          [
            "CAP_AUDIT_WRITE"
            "CAP_CHOWN"
            "CAP_DAC_OVERRIDE"
            "CAP_DAC_READ_SEARCH"
            "CAP_FOWNER"
            "CAP_KILL"
            "CAP_SETGID"
            "CAP_SETUID"
            "CAP_SYS_RESOURCE"
          ]
        else
          "";
      # systemctl as root talks to systemd over this socket, closed to others by its mode.
      InaccessiblePaths = messageSockets ++ lib.optional (!sudo) "-/run/systemd/private";

      # A deny list: a shell for developers calls almost anything.
      # Stays open: @debug for strace and gdb (ptrace), @mount for bwrap, @resources
      # for nice and taskset, @privileged for sudo.
      SystemCallFilter = [
        "~@clock @cpu-emulation @keyring @module @obsolete @raw-io @reboot @swap"
        "~bpf fanotify_init lookup_dcookie perf_event_open userfaultfd"
        # Programs take "not implemented" as the sign to use epoll.
        "~io_uring_enter:ENOSYS io_uring_register:ENOSYS io_uring_setup:ENOSYS"
      ];
      # AF_NETLINK: Node, Go and ip list the interfaces through it.
      RestrictAddressFamilies = [
        "AF_INET"
        "AF_INET6"
        "AF_NETLINK"
        "AF_UNIX"
      ];
      # A group namespace of its own: no way out of the limits, and none to the
      # groups of other users.
      ProtectControlGroups = "private";
      IPAddressDeny = lib.mkIf (!allowCloudMetadata) metadataAddresses;

      # Off, with the tool that each would break:
      # MemoryDenyWriteExecute  node, claude and opencode (just-in-time compilers)
      # RestrictNamespaces      bwrap, unshare, the sandboxes of the agents
      # ProtectHostname         unshare --uts with a host name of its own (codex)
      # PrivateUsers            sudo, and files of other owners seen as nobody's
      # PrivateNetwork          everything
    };

  # The supervisor: reads and writes files of its user, talks over UNIX sockets,
  # starts tmux clients, signals processes of its own user.
  supervisor =
    user:
    base user
    // {
      NoNewPrivileges = true;
      CapabilityBoundingSet = "";
      # It makes the groups of sessions below the delegated group of the sandbox.
      ProtectControlGroups = false;
      ProtectHostname = true;
      PrivateNetwork = true;
      IPAddressDeny = "any";
      RestrictAddressFamilies = [ "AF_UNIX" ];
      RestrictNamespaces = true;
      SystemCallFilter = [
        "@system-service"
        "~@privileged @resources"
      ];
      MemoryDenyWriteExecute = true;
    };

  # Hears the supervisor of its user, and sends to the network; touches no file.
  attention =
    common
    // closed
    // {
      ProtectHome = true;
      ProcSubset = "pid";
      RestrictAddressFamilies = [
        "AF_INET"
        "AF_INET6"
        "AF_UNIX"
      ];
      IPAddressDeny = metadataAddresses;
    };
}
