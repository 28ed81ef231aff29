# What a box opens to the network, by its options, and what is not there at all.
{ lib, evaluated }:
let
  inherit (import ./boxes.nix) user web;

  # Ports in the firewall.
  opened = {
    "HTTPS alone" = {
      web = { };
      tcp = [ 443 ];
      udp = [ ];
    };
    "HTTP, which leads to HTTPS" = {
      web.redirectHttp = true;
      tcp = [
        443
        80
      ];
      udp = [ ];
    };
    "HTTP/3" = {
      web.http3 = true;
      tcp = [ 443 ];
      udp = [ 443 ];
    };
  };

  # With a setting that leaves it out.
  absent = {
    "webhooks that are turned off" = lib.recursiveUpdate (web { }) { webhook.enable = false; };
    "webhooks of a box without a browser" = user;
    "webhooks of a user without a workspace" = lib.recursiveUpdate (web { }) {
      users.bob.web.enable = false;
    };
  };

  judgeAbsent =
    name: box:
    let
      # Names of units are all that counts here.
      config = evaluated { } (box // { hideProcesses = false; });
      of = if box ? users.bob then "bob" else "";
      namesOf = kind: lib.attrNames (config.systemd.${kind} or { });
      units = lib.filter (lib.hasPrefix "agent-box-webhook-${of}") (
        namesOf "services" ++ namesOf "sockets"
      );
      route = lib.hasInfix "agent-box-webhook/${of}" (
        config.environment.etc."caddy/Caddyfile".text or ""
      );
      document = config.services.agent-box.webhookDocument;
      users = if document == null then [ ] else lib.attrNames document.users;
      listed = if of == "" then users != [ ] else lib.elem of users;
    in
    lib.optional (
      units != [ ] || route || listed
    ) "${name}: found ${builtins.toJSON units}, route ${lib.boolToString route}";

  judgeOpened =
    name: case:
    let
      config = evaluated { } (web case.web);
      inherit (config.networking) firewall;
      found = {
        tcp = firewall.allowedTCPPorts;
        udp = firewall.allowedUDPPorts;
      };
    in
    lib.optional (
      found != { inherit (case) tcp udp; }
    ) "${name}: the firewall opens ${builtins.toJSON found}";
in
lib.concatLists (lib.mapAttrsToList judgeAbsent absent)
++ lib.concatLists (lib.mapAttrsToList judgeOpened opened)
