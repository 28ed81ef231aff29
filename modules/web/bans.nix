# Bans: fail2ban reads the one line that the gate writes for a wrong credential,
# and nothing that a client can shape. nftables drops whom it bans.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.agent-box;
  inherit (cfg) web;
  hardening = import ../hardening { inherit lib; };

  # Its database tells the jail who is banned. Without a server there is nothing to do.
  again = "${pkgs.runtimeShell} -c '${pkgs.nftables}/bin/nft list table inet agent-box-bans >/dev/null 2>&1 || ! ${config.services.fail2ban.package}/bin/fail2ban-client ping >/dev/null 2>&1 || ${config.services.fail2ban.package}/bin/fail2ban-client restart --if-exists agent-box-gate'";
in
{
  options.services.agent-box.web.fail2ban = lib.mkOption {
    type = lib.types.bool;
    default = true;
    description = ''
      Ban an address for an hour after five wrong passwords in ten minutes; of IPv6 the whole
      /64, which is what one customer has. Networks to trust go into
      {option}`services.fail2ban.ignoreIP`, and `agent-box-gate unban` lifts a ban.
    '';
  };

  config = lib.mkIf (cfg.enable && web.enable && web.fail2ban) {
    services.fail2ban = {
      enable = true;
      extraPackages = [ pkgs.nftables ];
    };

    environment.etc = {
      "fail2ban/jail.d/agent-box.conf".text = ''
        [agent-box-gate]
        enabled = true
        filter = agent-box-gate
        backend = systemd
        usedns = no
        maxretry = 5
        findtime = 10m
        bantime = 1h
        action = agent-box-nftables
      '';

      # The gate writes the /64 in place of an IPv6 address: so do failures count.
      "fail2ban/filter.d/agent-box-gate.conf".text = ''
        [Definition]
        failregex = ^\S+ agent-box-gate\[\d+\]: agent-box-gate: failed login from <SUBNET>$
        ignoreregex =

        [Init]
        journalmatch = _SYSTEMD_UNIT=agent-box-gate.service
      '';

      "fail2ban/action.d/agent-box-nftables.conf".text = ''
        [Definition]
        actionstart_on_demand = false
        actionstart = nft -f /etc/agent-box/bans.nft
                      : ><list>
                      chmod 0644 <list>
        actionstop = nft delete table inet agent-box-bans
                     : ><list>
        actioncheck = nft list set inet agent-box-bans <set>
        actionban = nft add element inet agent-box-bans <set> '{ <ip> }'
                    echo '<ip> <time> <bantime>' >><list>
        actionunban = nft delete element inet agent-box-bans <set> '{ <ip> }' || true
                      sed -i '\|^<ip> |d' <list> || true

        [Init]
        set = banned4
        # For the settings page, which shows whom to unban.
        list = /run/agent-box-bans/list

        [Init?family=inet6]
        set = banned6
      '';

      # Other ports stay open: with ssh, the owner can lift a ban of their own.
      "agent-box/bans.nft".text = ''
        table inet agent-box-bans
        delete table inet agent-box-bans
        table inet agent-box-bans {
          set banned4 {
            type ipv4_addr
          }
          set banned6 {
            type ipv6_addr
            flags interval
            auto-merge
          }
          chain input {
            type filter hook input priority -150; policy accept;
            ip saddr @banned4 jump drops
            ip6 saddr @banned6 jump drops
          }
          chain drops {
            tcp dport { 80, 443 } drop
            udp dport 443 drop
          }
        }
      '';
    };

    services.agent-box.firewallTables.bans = {
      description = "Bans that outlive changes of the firewall";
      load = again;
      # fail2ban loads them.
      rules = [ ];
      serviceConfig = hardening.bansAgain;
    };

    services.agent-box.tmpfiles = [
      "d /run/agent-box-bans 0755 root root -"
      # Below a directory of root's, so that nobody puts a link in its place.
      "d /run/agent-box-bans/wishes 0770 root agent-box-gate -"
    ];

    systemd = {
      services.fail2ban = {
        # All jails read the system's journal only (SD_JOURNAL_SYSTEM). fail2ban 1.1.1 opens the
        # journals of users by name, too, and reads nothing at all if one of them is damaged.
        environment.F2B_SYSTEMD_DEFAULT_FLAGS = lib.mkDefault "4";
        serviceConfig = hardening.bans // {
          ReadWritePaths = [ "-/run/agent-box-bans" ];
        };
      };

      # It asks fail2ban, which would make the table again with the next ban only, and without
      # earlier ones.
      services.agent-box-bans.after = [ "fail2ban.service" ];
      services.agent-box-bans-again.after = [ "fail2ban.service" ];

      # The gate has no rights over the firewall. It leaves the wish in a directory.
      paths.agent-box-gate-unban = {
        description = "Wishes to lift a ban";
        wantedBy = [ "multi-user.target" ];
        pathConfig = {
          DirectoryNotEmpty = "/run/agent-box-bans/wishes";
          TriggerLimitIntervalSec = 0;
        };
      };

      services.agent-box-gate-unban = {
        description = "Lift the bans that a signed-in user asked to lift";
        after = [ "fail2ban.service" ];
        path = [ config.services.fail2ban.package ];
        # Who wishes often must not stop it for all: a path unit fails with its service.
        unitConfig.StartLimitIntervalSec = 0;
        serviceConfig = hardening.unban // {
          Type = "oneshot";
          ExecStart = "${cfg.runtime}/bin/agent-box-gate unban --requested";
          ReadWritePaths = [ "-/run/agent-box-bans/wishes" ];
          TimeoutStartSec = "30s";
        };
      };
    };
  };
}
