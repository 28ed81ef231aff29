# How many connections one address has to the edge: a stranger alone takes neither its
# memory nor its descriptors.
{
  config,
  lib,
  ...
}:
let
  cfg = config.services.agent-box;
  inherit (cfg) web;
  limit = toString web.connectionsPerAddress;
in
{
  options.services.agent-box.web.connectionsPerAddress = lib.mkOption {
    type = lib.types.nullOr lib.types.ints.positive;
    default = 128;
    description = ''
      Connections to the workspace that one address may have open at a time; of IPv6 the whole
      /64, which is what one customer has. A browser takes one, and another for each terminal that
      is open in it. Raise it where many people share one address, as behind a proxy or in an
      office. Null: any number.
    '';
  };

  config = lib.mkIf (cfg.enable && web.enable && web.connectionsPerAddress != null) {
    environment.etc."agent-box/connections.nft".text = ''
      table inet agent-box-connections
      delete table inet agent-box-connections
      table inet agent-box-connections {
        set open4 {
          type ipv4_addr
          size 65535
          flags dynamic
        }
        set open6 {
          type ipv6_addr
          size 65535
          flags dynamic
        }
        chain input {
          type filter hook input priority -140; policy accept;
          iif lo accept
          tcp dport { 80, 443 } ct state new jump counted
        }
        chain counted {
          add @open4 { ip saddr ct count over ${limit} } reject with tcp reset
          add @open6 { ip6 saddr & ffff:ffff:ffff:ffff:: ct count over ${limit} } reject with tcp reset
        }
      }
    '';

    services.agent-box.firewallTables.connections.description =
      "Connections of each address to the edge";

    systemd.services.agent-box-connections.before = [ "caddy.service" ];
  };
}
