# The metadata addresses of clouds: who is kept away, by which means, and what gives way.
{ lib, evaluated }:
let
  inherit (import ./boxes.nix) user web;
  hardening = import ../../modules/hardening { inherit lib; };

  # Without what does not count here.
  systemOf = more: box: evaluated more (box // { hideProcesses = false; });
  daemonOf = box: (systemOf { } box).systemd.services.nix-daemon.serviceConfig or { };
  rulesOf =
    more: box: (systemOf more box).environment.etc."agent-box/metadata.nft".text or "";

  may = {
    users.alice.allowCloudMetadata = true;
  };
  both = lib.recursiveUpdate may { users.bob = { }; };
  plain = builtins.unsafeDiscardStringContext;
  nftables.networking.nftables.enable = true;

  checks = {
    "the daemon of Nix is kept away" =
      (daemonOf user).IPAddressDeny or [ ] == hardening.metadataAddresses;
    "it is for the sake of one user" =
      (daemonOf both).IPAddressDeny or [ ] == hardening.metadataAddresses;
    "it may where everybody may" = !(daemonOf may ? IPAddressDeny);
    "it may where the owner says so" =
      !(daemonOf (user // { allowNixDaemonMetadata = true; }) ? IPAddressDeny);
    "its builds stay within limits" =
      daemonOf user ? MemoryMax && daemonOf user ? TasksMax && daemonOf user ? OOMScoreAdjust;
    "limits are left to who protects memory otherwise" =
      !(daemonOf (user // { protectMemory = false; }) ? MemoryMax);
    "root alone reaches them" = lib.hasInfix "meta skuid { 0 } accept" (rulesOf { } user);
    "a user who may does, too" = lib.hasInfix "meta skuid { 0, \"alice\" } accept" (rulesOf { } both);
    "no table where everybody may" = rulesOf { } may == "";
    "every address is in the table" = lib.all (address: lib.hasInfix address (rulesOf { } user)) (
      hardening.metadataAddresses ++ hardening.metadataResolvers
    );
    "an address of one's own is" = lib.hasInfix "10.1.1.1" (
      rulesOf { } (user // { extraMetadataAddresses = [ "10.1.1.1" ]; })
    );
    "an interface may" = lib.hasInfix "elements = { \"docker0\" }" (
      rulesOf { } (user // { metadataInterfaces = [ "docker0" ]; })
    );
    "a firewall that empties all tables has all of ours loaded again" =
      let
        system = systemOf nftables (web { });
        inherit (system.systemd) services;
        tables = lib.attrValues system.services.agent-box.firewallTables;
      in
      lib.length tables >= 4
      && lib.all (
        table:
        let
          unit = services."agent-box-${table.name}";
          again = services."agent-box-${table.name}-again";
        in
        lib.elem "nftables.service" unit.unitConfig.ReloadPropagatedFrom
        && unit.serviceConfig.ExecReload == table.load
        && lib.elem "nftables.service" again.wantedBy
        && lib.hasInfix "${plain table.load} || " (plain services.nftables.postStop)
      ) tables;
    "no ids below those of a user" = !(systemOf { } user).users.users.alice.autoSubUidGidRange;
    "unless the host says so" =
      (systemOf { users.users.alice.autoSubUidGidRange = true; } user)
      .users.users.alice.autoSubUidGidRange;
  };
in
map (name: "metadata: it does not hold that ${name}") (
  lib.attrNames (lib.filterAttrs (_: holds: !holds) checks)
)
