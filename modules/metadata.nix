# Keeps everybody but root away from the addresses where clouds hand out credentials of
# the machine. The sandbox denies them to a session; the packet filter to whatever runs
# elsewhere for the same people: logins over ssh, builders of Nix, the subordinate ids of
# a user, services of other accounts, networks behind this machine.
{
  config,
  lib,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.services.agent-box;
  hardening = import ./hardening { inherit lib; };

  quoted = lib.concatMapStringsSep ", " (name: "\"${name}\"");
  allowed = lib.attrNames (lib.filterAttrs (_: user: user.metadataAllowed) cfg.users);
  accounts = lib.unique (allowed ++ cfg.metadataUsers);

  v6 = lib.hasInfix ":";
  addresses = lib.unique (
    hardening.metadataAddresses ++ hardening.metadataResolvers ++ cfg.extraMetadataAddresses
  );
  v4Addresses = lib.concatStringsSep ", " (lib.filter (a: !v6 a) addresses);
  v6Addresses = lib.concatStringsSep ", " (lib.filter v6 addresses);
in
{
  options.services.agent-box = {
    allowCloudMetadata = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Let users and their sessions reach the metadata addresses of clouds. Who reaches
        them can act with the cloud credentials of the machine.
      '';
    };

    metadataUsers = mkOption {
      type = types.listOf (types.strMatching "[a-z_][a-z0-9_-]*");
      default = [ ];
      example = [ "cwagent" ];
      description = ''
        Accounts of the system, beside root, that reach the metadata addresses of clouds:
        services of the host that work with its cloud credentials. Everybody else is kept
        away as long as one user of the box is. Names and time (ports 53 and 123) everybody
        gets from these addresses.
      '';
    };

    metadataInterfaces = mkOption {
      type = types.listOf (types.strMatching "[A-Za-z0-9_.-]{1,15}");
      default = [ ];
      example = [ "docker0" ];
      description = ''
        Interfaces of this machine from which it passes packets on to the metadata addresses
        of clouds. From all others, of containers and of virtual machines, it does not.
      '';
    };

    extraMetadataAddresses = mkOption {
      type = types.listOf (types.strMatching "[0-9.]+|[0-9a-f:]*:[0-9a-f:.]*");
      default = [ ];
      example = [ "10.1.1.1" ];
      description = ''
        Further addresses that the packet filter keeps users away from, for a cloud with one of
        its own: the virtual router of CloudStack, for example.
      '';
    };

    users = mkOption {
      type = types.attrsOf (
        types.submodule (
          { config, ... }:
          {
            options = {
              allowCloudMetadata = mkOption {
                type = types.nullOr types.bool;
                default = null;
                description = ''
                  Let this user reach the metadata addresses of clouds. Null:
                  {option}`services.agent-box.allowCloudMetadata`.
                '';
              };
              metadataAllowed = mkOption {
                type = types.bool;
                internal = true;
                readOnly = true;
                default =
                  if config.allowCloudMetadata == null then cfg.allowCloudMetadata else config.allowCloudMetadata;
                description = "Whether this user reaches the metadata addresses.";
              };
            };
          }
        )
      );
    };

    keepsMetadata = mkOption {
      type = types.bool;
      internal = true;
      readOnly = true;
      default = lib.any (user: !user.metadataAllowed) (lib.attrValues cfg.users);
      description = "Whether anybody is kept away from the metadata addresses.";
    };
  };

  config = lib.mkIf (cfg.enable && cfg.keepsMetadata) {
    # nft refuses the whole table for one name that it does not know.
    assertions = map (name: {
      assertion = name == "root" || config.users.users ? ${name};
      message = "services.agent-box.metadataUsers: there is no account \"${name}\". Take it from the list, or declare it in users.users.";
    }) cfg.metadataUsers;

    # A table of our own, beside whatever firewall the machine has.
    environment.etc."agent-box/metadata.nft".text = ''
      table inet agent-box-metadata
      delete table inet agent-box-metadata
      table inet agent-box-metadata {
        set interfaces {
          type ifname
          ${
            lib.optionalString (cfg.metadataInterfaces != [ ])
              "elements = { ${quoted (lib.unique cfg.metadataInterfaces)} }"
          }
        }
        chain output {
          type filter hook output priority -150; policy accept;
          meta skuid { ${lib.concatStringsSep ", " ([ "0" ] ++ map (name: "\"${name}\"") accounts)} } accept
          meta skuid != 0 jump denied
          # What nobody owns: the kernel ends connections whose program is gone, and begins none.
          tcp flags & syn == syn jump denied
        }
        # Before any translation of addresses, and also what is for this machine itself.
        chain passing {
          type filter hook prerouting priority -150; policy accept;
          iif "lo" accept
          iifname @interfaces accept
          # Networks of users who may: agent-box-network puts their interfaces into this group.
          iifgroup ${toString cfg.network.metadataGroup} accept
          jump denied
        }
        chain denied {
          # Some of these addresses give a machine its names and its time, too.
          meta l4proto { tcp, udp } th dport 53 return
          udp dport { 67, 123, 547 } return
          ip daddr { ${v4Addresses} } reject with icmpx admin-prohibited
          ip6 daddr { ${v6Addresses} } reject with icmpx admin-prohibited
        }
      }
    '';

    services.agent-box.firewallTables.metadata.description =
      "Keep users from the metadata addresses of clouds";

    # The addresses are out of reach before the network is there.
    systemd.services.agent-box-metadata = {
      wants = [ "network-pre.target" ];
      before = [ "network-pre.target" ];
    };
  };
}
