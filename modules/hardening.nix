# Hardening of our units as plain attrsets of serviceConfig, one per class of unit.
# `base` is what every class shares. A setting that is weaker than it could be
# names the tool that the stronger one breaks.
{ lib }:
rec {
  # Addresses where clouds hand out credentials of the machine, or what it was launched
  # with, and nothing else that a program of a user needs.
  metadataAddresses = [
    "169.254.169.254" # AWS, Google, Azure, DigitalOcean, Hetzner, OpenStack and most others
    "169.254.170.2" # AWS container credentials
    "169.254.170.23" # AWS pod identity
    "169.254.0.23" # Tencent
    "169.254.42.42" # Scaleway
    "100.96.0.96" # Volcano Engine
    "100.100.100.200" # Alibaba
    "192.0.0.192" # Oracle
    "fd00:ec2::254" # AWS over IPv6
    "fd00:ec2::23" # AWS pod identity over IPv6
    "fd00:100::100:200" # Alibaba over IPv6
    "fd00:c1::a9fe:a9fe" # Oracle over IPv6
    "fd20:ce::254" # Google over IPv6
    "fd00:42::42" # Scaleway over IPv6
    "fd00:a9fe:a9fe::1" # Akamai (Linode) over IPv6
    "fe80::a9fe:a9fe" # OpenStack, Akamai over IPv6, on whatever link
  ];

  # Those that are the machine's resolver, too: only the packet filter, which knows ports,
  # can keep the one without the other.
  metadataResolvers = [
    "168.63.129.16" # Azure (WireServer)
  ];

  # The system bus leads to systemd, logind and whatever else listens; the same
  # services listen on sockets of their own, too.
  # So do those of others that act as root for whoever asks: sshd without a network, and the
  # helper of polkit.
  messageSockets = [
    "-/run/dbus"
    "-/run/polkit"
    "-/run/ssh-unix-local"
    "-/run/systemd/report"
    "-/run/varlink"
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
    # What a unit may write there it names, most by RuntimeDirectory.
    ReadOnlyPaths = [ "/run" ];
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

  # /tmp and /var/tmp of the sessions of a user, for all units that must mean the same by a
  # path in them. Sharing those of one unit (JoinsNamespaceOf) would share its network, too.
  sharedTmp = user: {
    BindPaths = [
      "/home/${user}"
      "/var/lib/agent-box-tmp/${user}/tmp:/tmp"
      "/var/lib/agent-box-tmp/${user}/var-tmp:/var/tmp"
    ];
    ReadWritePaths = [
      "/tmp"
      "/var/tmp"
    ];
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

  # Tells users how units and the certificate are: asks the system bus and the edge.
  status = daemon // {
    DynamicUser = true;
    InaccessiblePaths = lib.remove "-/run/dbus" messageSockets ++ [ "-/run/systemd/private" ];
    RestrictAddressFamilies = [
      "AF_INET"
      "AF_UNIX"
    ];
    IPAddressAllow = "127.0.0.1";
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

  # Makes networks of users, as root. A mount namespace of its own would hide from
  # systemd the namespaces that it makes, so nothing here asks for one.
  network = {
    inherit (common)
      KeyringMode
      LockPersonality
      RestrictRealtime
      RestrictSUIDSGID
      SystemCallArchitectures
      SystemCallErrorNumber
      UMask
      ;
    # No IPAddressDeny: the kernel's own sockets of a namespace, which find neighbours over
    # IPv6, belong to the control group of who made it, and would be filtered for ever.
    inherit (closed) MemoryDenyWriteExecute;
    NoNewPrivileges = true;
    CapabilityBoundingSet = [
      "CAP_NET_ADMIN"
      "CAP_SYS_ADMIN"
    ];
    RestrictNamespaces = "mnt net";
    RestrictAddressFamilies = [
      "AF_INET"
      "AF_NETLINK"
      "AF_UNIX"
    ];
    SystemCallFilter = [
      "@system-service @mount"
      "~@privileged @resources"
      "@mount"
    ];
  };

  # Answers questions about names for users, as nobody in particular.
  names =
    common
    // closed
    // {
      DynamicUser = true;
      AmbientCapabilities = "CAP_NET_BIND_SERVICE";
      CapabilityBoundingSet = "CAP_NET_BIND_SERVICE";
      ProtectHome = true;
      ProcSubset = "pid";
      RestrictAddressFamilies = [
        "AF_INET"
        "AF_INET6"
        "AF_NETLINK"
        "AF_UNIX"
      ];
      # The name server of some clouds is at the address of their metadata, on a port of its own.
      IPAddressDeny = [ ];
    };

  # Passes on connections to one port of the machine.
  portForward = daemon // {
    DynamicUser = true;
    RestrictAddressFamilies = [
      "AF_INET"
      "AF_INET6"
      "AF_UNIX"
    ];
    IPAddressAllow = "127.0.0.1";
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

  # Looks whether the table of bans is there, and asks fail2ban to make it again.
  bansAgain = daemon // {
    CapabilityBoundingSet = [
      "CAP_DAC_OVERRIDE"
      "CAP_NET_ADMIN"
    ];
    RestrictAddressFamilies = [
      "AF_NETLINK"
      "AF_UNIX"
    ];
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
      PrivateNetwork = true;
    };

  # The receiver of a user's webhooks: files of the user, the sockets of the supervisor
  # and of plugin processes. It sees processes of the user, to tell who is gone.
  webhook = user: base user // closed // { PrivateNetwork = true; };

  # Hands on what comes on one socket of a user to another: it goes no further than the
  # user could, and needs nothing else of what is the user's.
  relay =
    user:
    base user
    // closed
    // {
      BindPaths = [ ];
      PrivateNetwork = true;
    };

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
    // sharedTmp user
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
    // sharedTmp user
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
