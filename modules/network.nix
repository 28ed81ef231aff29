# A network for each user: a localhost that nobody else is on, and a way out over the
# connection of the machine. Without it every user's development server, and every
# abstract socket, would be open to all the others.
#
# A root unit per user makes a network namespace with a name, and a pair of interfaces
# between it and the machine. All units in which the user's programs run name that
# namespace, so none of them can start before it exists.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.services.agent-box;
  inherit (cfg) network;
  hardening = import ./hardening { inherit lib; };

  users = lib.filter (name: cfg.users.${name}.networkPrivate) (lib.attrNames cfg.users);
  active = cfg.enable && users != [ ];

  tools = [
    pkgs.iproute2
    pkgs.nftables
    pkgs.procps
  ];

  # Until it works, while whoever needs it waits.
  retry = {
    Restart = "on-failure";
    RestartMode = "direct";
    RestartSec = "1s";
    RestartSteps = 5;
    RestartMaxDelaySec = "30s";
  };

  unitOf = name: "agent-box-network-${name}.service";
  namespaceOf = name: "/run/netns/agent-box-${name}";

  # The machine's own end of every user's network, where the name server listens.
  hostAddress = "198.18.0.1";

  # A line of shell, since the check has to run in the namespace that it is about. A process
  # that has ended by then is in none.
  verify =
    name: process:
    "${pkgs.runtimeShell} -c '${pkgs.coreutils}/bin/test /proc/${process}/ns/net -ef ${namespaceOf name} || ${pkgs.coreutils}/bin/test ! -e /proc/${process} || { echo \"This unit is not in the network of ${name}. Restart it after: systemctl restart ${unitOf name}\" >&2; exit 1; }'";

  # What a unit gets in which programs of the user run.
  inUserNetwork =
    name:
    if lib.elem name users then
      {
        bindsTo = [ (unitOf name) ];
        after = [ (unitOf name) ];
        serviceConfig = {
          NetworkNamespacePath = namespaceOf name;
          BindReadOnlyPaths = [ "/etc/agent-box/resolv.conf:/etc/resolv.conf" ];
          # systemd says nothing where it does not apply what a unit declares.
          ExecStartPre = [ (verify name "self") ];
          ExecStartPost = [ (verify name "$MAINPID") ];
        };
      }
    else
      { };

  ports = lib.optionalString cfg.web.enable ''
    tcp dport { ${lib.optionalString cfg.web.redirectHttp "80, "}443 } accept
    ${lib.optionalString cfg.web.http3 "udp dport 443 accept"}
  '';

  rules = ''
    table inet agent-box-network
    delete table inet agent-box-network
    table inet agent-box-network {
      # How many connections each user has open: the kernel's table of them is shared.
      set connections {
        type ifname
        size 65535
        flags dynamic
      }
      set names {
        type ifname
        size 65535
        flags dynamic
      }

      # From users to this machine: the name server, and the edge, which is for everybody.
      chain input {
        type filter hook input priority -140; policy accept;
        iifname "ab-*" jump from-user
        # The name server is for nobody else, wherever a packet comes in.
        iifname != "lo" ip daddr ${hostAddress} drop
      }
      chain from-user {
        ct state established,related accept
        ip daddr ${hostAddress} meta l4proto { tcp, udp } th dport 53 jump names
        meta l4proto { icmp, icmpv6 } accept
    ${lib.concatMapStrings (line: "    ${line}\n") (
      lib.filter (line: line != "") (lib.splitString "\n" ports)
    )}    reject with icmpx admin-prohibited
      }
      chain names {
        ct state new add @names { iifname ct count over 256 } reject with icmpx admin-prohibited
        accept
      }

      # From users to everywhere else, but not to each other; back only what answers.
      chain forward {
        type filter hook forward priority -140; policy accept;
        iifname "ab-*" jump outwards
        oifname "ab-*" ct state established,related accept
        oifname "ab-*" drop
        jump others
      }
      chain outwards {
        oifname "ab-*" reject with icmpx admin-prohibited
        ct state new add @connections { iifname ct count over ${toString network.maxConnections} } reject with icmpx admin-prohibited
        tcp flags syn tcp option maxseg size set rt mtu
      }
      # Filled where forwarding was off before: no router between the machine's other
      # networks.
      chain others {
      }

      # Logins are in the network of the machine, and what sessions serve is not for them.
      chain output {
        type filter hook output priority -140; policy accept;
        oifname "ab-*" meta skuid != 0 ct state new reject with icmpx admin-prohibited
      }

      chain outgoing {
        type nat hook postrouting priority srcnat; policy accept;
        ip saddr ${network.addresses} oifname != "ab-*" masquerade
        ip6 saddr ${network.addresses6} oifname != "ab-*" masquerade
      }
    }
  '';

  networkOf = name: {
    description = "Network of ${name}";
    requires = [ "agent-box-network.service" ];
    after = [ "agent-box-network.service" ];
    unitConfig.StartLimitIntervalSec = 0;
    # Sessions are in it. What changes here applies to the next boot.
    restartIfChanged = false;
    path = [
      pkgs.iproute2
      pkgs.procps
    ];
    # Sessions wait for it: they would stay away if it failed once.
    serviceConfig = hardening.network // retry // {
      Type = "oneshot";
      RemainAfterExit = true;
      ExecStart = "${cfg.runtime}/bin/agent-box-network up ${name}";
      ExecStop = "${cfg.runtime}/bin/agent-box-network down ${name}";
      TimeoutStartSec = "5min";
    };
  };

  # A firewall that drops what it does not know would drop these as well.
  firewall = config.networking.firewall;
  withNftables = config.networking.nftables.enable;
in
{
  options.services.agent-box = {
    network = {
      private = mkOption {
        type = types.bool;
        default = true;
        description = ''
          Whether each user has a network of its own: its own `localhost`, its own abstract
          sockets, and a way out through the connection of the machine. What listens on
          this machine or in the network of another user is out of reach, except for the web
          server of the box and for {option}`services.agent-box.users.<name>.network.hostPorts`.
          Login shells, as over ssh, are in the network of the machine.
        '';
      };

      addresses = mkOption {
        type = types.strMatching "[0-9.]+/[0-9]+";
        default = "198.18.0.0/15";
        internal = true;
        description = "IPv4 addresses from which each user gets one.";
      };

      addresses6 = mkOption {
        type = types.strMatching "[0-9a-f:]+/[0-9]+";
        default = "fd5a:7e2c:91b0::/64";
        internal = true;
        description = "IPv6 addresses from which each user gets one.";
      };

      metadataGroup = mkOption {
        type = types.int;
        default = 24930;
        internal = true;
        readOnly = true;
        description = "Group of the interfaces of users who reach the metadata addresses.";
      };

      maxConnections = mkOption {
        type = types.ints.positive;
        default = 8192;
        description = ''
          Upper limit for the open connections of one user to the internet. Further ones are
          refused until others end.
        '';
      };
    };

    users = mkOption {
      type = types.attrsOf (
        types.submodule (
          { config, ... }:
          {
            options = {
              network = {
                private = mkOption {
                  type = types.nullOr types.bool;
                  default = null;
                  description = ''
                    Whether this user has a network of its own. If null,
                    {option}`services.agent-box.network.private`.
                  '';
                };
              };
              networkPrivate = mkOption {
                type = types.bool;
                internal = true;
                readOnly = true;
                default =
                  if config.network.private == null then network.private else config.network.private;
                description = "Whether this user has a network of its own.";
              };
            };
          }
        )
      );
    };

    inUserNetwork = mkOption {
      type = types.functionTo types.raw;
      internal = true;
      readOnly = true;
      default = inUserNetwork;
      description = ''
        Settings of a unit in which programs of the given user run: they put it into the
        network of that user.
      '';
    };
  };

  config = lib.mkIf active {
    services.agent-box.firewallTables.network = {
      description = "Networks of the users of the box";
      # With rules that depend on what the machine forwarded before.
      load = "${cfg.runtime}/bin/agent-box-network prepare";
      serviceConfig = hardening.network;
    };

    environment.etc = {
      "agent-box/network.nft".text = rules;
      "agent-box/resolv.conf".text = ''
        ${lib.optionalString (
          config.networking.search != [ ]
        ) "search ${lib.concatStringsSep " " config.networking.search}\n"}nameserver ${hostAddress}
        options edns0
      '';
    };

    systemd = {
      services = lib.mkMerge [
        {
          agent-box-network = {
            wants = [ "network-pre.target" ];
            # Before Docker: it closes forwarding for everybody where it is the one to turn it on.
            before = [
              "network-pre.target"
              "docker.service"
            ];
            unitConfig.StartLimitIntervalSec = 0;
            path = tools;
            serviceConfig = retry // {
              RuntimeDirectory = "agent-box-network";
              RuntimeDirectoryPreserve = true;
            };
          };
          agent-box-network-again.path = tools;
          nftables = lib.mkIf withNftables { path = tools; };

          agent-box-names = {
            description = "Name server for the users of the box";
            wantedBy = [ "multi-user.target" ];
            requires = [ "agent-box-network.service" ];
            after = [
              "agent-box-network.service"
              "network.target"
            ];
            unitConfig.StartLimitIntervalSec = 0;
            serviceConfig = hardening.names // {
              Type = "exec";
              ExecStart = lib.concatStringsSep " " [
                "${pkgs.dnsmasq}/bin/dnsmasq --keep-in-foreground --conf-file=/dev/null --log-facility=-"
                "--listen-address=${hostAddress} --bind-interfaces --no-hosts"
                # It asks whom the machine asks, and looks when that changes.
                "--resolv-file=/etc/resolv.conf"
                "--cache-size=1000 --dns-forward-max=1000 --proxy-dnssec"
              ];
              Restart = "always";
              RestartSec = "100ms";
              RestartSteps = 10;
              RestartMaxDelaySec = "5s";
              MemoryMax = "128M";
              TasksMax = 64;
            };
          };
        }
        (lib.listToAttrs (
          map (name: lib.nameValuePair "agent-box-network-${name}" (networkOf name)) users
        ))
      ];

      # Nobody else may configure these interfaces.
      network.networks."05-agent-box" = {
        matchConfig.Name = "ab-*";
        linkConfig.Unmanaged = true;
      };
    };
    networking = {
      dhcpcd.denyInterfaces = [ "ab-*" ];
      networkmanager.unmanaged = [ "interface-name:ab-*" ];
      firewall = lib.mkIf firewall.enable (
        if withNftables then
          {
            extraInputRules = ''iifname "ab-*" meta l4proto { tcp, udp } th dport 53 accept'';
            extraForwardRules = lib.mkIf firewall.filterForward ''iifname "ab-*" accept'';
          }
        else
          {
            extraCommands = ''
              iptables -A nixos-fw -i ab-+ -p udp --dport 53 -j nixos-fw-accept
              iptables -A nixos-fw -i ab-+ -p tcp --dport 53 -j nixos-fw-accept
            '';
          }
      );
    };
  };
}
