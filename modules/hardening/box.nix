# Units of the box itself: root's helpers, and services with an account of their own.
{ lib, shared }:
let
  inherit (shared)
    closed
    common
    daemon
    messageSockets
    metadataAddresses
    ;
in
{
  # The login service: sockets that systemd opened, and its own state.
  gate = daemon // {
    PrivateNetwork = true;
    PrivateUsers = true;
  };

  # Copies files of root's for the edge, which reads them.
  keepAssets = daemon // {
    PrivateNetwork = true;
    UMask = "0022";
  };

  # Tells users how units and the certificate are: asks the system bus and the edge.
  status = daemon // {
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
      # What builds and switches may keep things of its own there.
      ReadOnlyPaths = [ ];
      # systemd switches, and is asked over its sockets.
      InaccessiblePaths = [ ];
      # nix reads /proc/self/mountinfo and the like.
      ProcSubset = "all";
      # With @resources: an evaluation takes a larger stack.
      SystemCallFilter = [ "@system-service" ];
    };
}
