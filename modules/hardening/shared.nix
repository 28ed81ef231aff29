# What classes of units have in common, and what all of them are kept from.
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
}
