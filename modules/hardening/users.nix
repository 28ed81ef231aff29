# Units that run as a user. To the kernel they are one user, and each could be made to act for
# the others: all have at least the confinement of the sandbox.
{ lib, shared }:
let
  inherit (shared)
    base
    closed
    common
    messageSockets
    metadataAddresses
    sharedTmp
    ;
in
{
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
