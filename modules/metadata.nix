# Keeps users away from the addresses where clouds hand out credentials of the
# machine. The sandbox denies them to a session; the firewall to whatever else runs
# as the user: a login over ssh, which an agent can make, is outside of any sandbox.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.services.agent-box;
  hardening = import ./hardening.nix { inherit lib; };

  kept = lib.attrNames (lib.filterAttrs (_: user: !user.metadataAllowed) cfg.users);
  users = lib.concatMapStringsSep ", " (name: "\"${name}\"") kept;
  v6 = lib.hasInfix ":";
  v4Addresses = lib.concatStringsSep ", " (lib.filter (a: !v6 a) hardening.metadataAddresses);
  v6Addresses = lib.concatStringsSep ", " (lib.filter v6 hardening.metadataAddresses);
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
  };

  config = lib.mkIf (cfg.enable && kept != [ ]) {
    # A table of our own: it holds whatever firewall the machine has.
    environment.etc."agent-box/metadata.nft".text = ''
      table inet agent-box-metadata
      delete table inet agent-box-metadata
      table inet agent-box-metadata {
        chain output {
          type filter hook output priority -150; policy accept;
          meta skuid { ${users} } jump denied
        }
        chain denied {
          ip daddr { ${v4Addresses} } reject with icmpx admin-prohibited
          ip6 daddr { ${v6Addresses} } reject with icmpx admin-prohibited
        }
      }
    '';

    systemd.services.agent-box-metadata = {
      description = "Keep users from the metadata addresses of clouds";
      wantedBy = [ "multi-user.target" ];
      # The addresses are out of reach before the network is there.
      wants = [ "network-pre.target" ];
      before = [ "network-pre.target" ];
      serviceConfig = hardening.firewall // {
        Type = "oneshot";
        RemainAfterExit = true;
        ExecStart = "${pkgs.nftables}/bin/nft -f /etc/agent-box/metadata.nft";
        ExecReload = "${pkgs.nftables}/bin/nft -f /etc/agent-box/metadata.nft";
      };
      reloadTriggers = [ config.environment.etc."agent-box/metadata.nft".text ];
    };
  };
}
