# Tables of our own in the packet filter, beside whatever firewall the machine has. That
# firewall may empty the tables of everybody: when it starts, loads its rules again or
# stops. Ours are loaded again each time.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.services.agent-box;
  hardening = import ./hardening { inherit lib; };
  tables = lib.attrValues cfg.firewallTables;
  unitOf = table: "agent-box-${table.name}";

  # No `partOf`: a unit that stopped with the firewall would take its dependants along.
  load = table: {
    inherit (table) description;
    wantedBy = [ "multi-user.target" ];
    after = [ "nftables.service" ];
    unitConfig.ReloadPropagatedFrom = [ "nftables.service" ];
    serviceConfig = table.serviceConfig // {
      Type = "oneshot";
      RemainAfterExit = true;
      ExecStart = table.load;
      ExecReload = table.load;
    };
    reloadTriggers = table.rules;
  };

  # For a firewall that starts later than the unit above, which is there already.
  loadAgain = table: {
    description = "${table.description}, after a start of the firewall";
    wantedBy = [ "nftables.service" ];
    after = [
      "nftables.service"
      "${unitOf table}.service"
    ];
    serviceConfig = table.serviceConfig // {
      Type = "oneshot";
      ExecStart = table.load;
    };
  };
in
{
  options.services.agent-box.firewallTables = mkOption {
    type = types.attrsOf (
      types.submodule (
        { name, ... }:
        {
          options = {
            name = mkOption {
              type = types.str;
              default = name;
              description = "Name of the unit that loads the table, without `agent-box-`.";
            };
            description = mkOption {
              type = types.str;
              description = "What the table is for.";
            };
            load = mkOption {
              type = types.str;
              default = "${pkgs.nftables}/bin/nft -f /etc/agent-box/${name}.nft";
              description = "Command that puts the table in place, whether it is there or not.";
            };
            rules = mkOption {
              type = types.listOf types.str;
              default = [ config.environment.etc."agent-box/${name}.nft".text ];
              description = "Texts whose change has the table loaded again.";
            };
            serviceConfig = mkOption {
              type = types.attrs;
              default = hardening.firewall;
              description = "Restrictions of the units that run the command.";
            };
          };
        }
      )
    );
    default = { };
    internal = true;
    visible = false;
    description = "Tables of the packet filter that have to outlive changes of the firewall.";
  };

  config = lib.mkIf (cfg.enable && tables != [ ]) {
    systemd.services = lib.mkMerge (
      [
        # When that firewall is stopped, by whoever needs a moment without it. One table that
        # cannot be loaded keeps back no other: the script ends at the first error.
        (lib.mkIf (config.networking.nftables.enable or false) {
          nftables.postStop = lib.concatMapStrings (
            table: "${table.load} || echo 'the table of ${unitOf table} is not loaded' >&2\n"
          ) tables;
        })
      ]
      ++ map (table: {
        ${unitOf table} = load table;
        "${unitOf table}-again" = loadAgain table;
      }) tables
    );
  };
}
