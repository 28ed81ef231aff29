# The box in the browser, webhooks and updates.
{ lib, ... }:
let
  inherit (import ./boxes.nix) update web;
in
{
  refused = {
    "domain with a scheme" = {
      box = web { domain = "https://box.example.com"; };
      remedy = "without scheme, port or path";
    };
    "domain with a port" = {
      box = web { domain = "box.example.com:8443"; };
      remedy = "without scheme, port or path";
    };
    "domain with a capital" = {
      box = web { domain = "Box.example.com"; };
      remedy = "in lower case";
    };
    "domain with a dot at the end" = {
      box = web { domain = "box.example.com."; };
      remedy = "in lower case";
    };
    "domain that ends the site's line" = {
      box = web { domain = "box.example.com {\n}"; };
      remedy = "in lower case";
    };
    "domain of sites with a scheme" = {
      box = web { sitesDomain = "https://sites.example.org"; };
      remedy = "without scheme, port or path";
    };
    "domain of sites that is no domain" = {
      box = web { sitesDomain = "localhost"; };
      remedy = "is no domain";
    };
    "domain of sites below the box's" = {
      box = web { sitesDomain = "sites.box.example.com"; };
      remedy = "registered by itself";
    };
    "domain of sites above the box's" = {
      box = web { sitesDomain = "example.com"; };
      remedy = "registered by itself";
    };
    "domain of sites that is the box's" = {
      box = web { sitesDomain = "box.example.com"; };
      remedy = "registered by itself";
    };
    "origin without TLS" = {
      box = web { origins = [ "http://box.example.com" ]; };
      remedy = "without a slash at the end";
    };
    "origin with a slash" = {
      box = web { origins = [ "https://box.example.com/" ]; };
      remedy = "without a slash at the end";
    };
    "first user who does not exist" = {
      box = web { user = "carol"; };
      remedy = "Name one of: alice";
    };
    "first user without a workspace" = {
      box = lib.recursiveUpdate (web { user = "bob"; }) { users.bob.web.enable = false; };
      remedy = "Name one of: alice";
    };
    "nobody with a workspace" = {
      box = lib.recursiveUpdate (web { }) { users.alice.web.enable = false; };
      remedy = "Set users.<name>.web.enable";
    };
    "password file that is relative" = {
      box = lib.recursiveUpdate (web { }) { users.alice.web.passwordHashFile = "hash"; };
      remedy = "Write it out";
    };
    "password file with a colon" = {
      box = lib.recursiveUpdate (web { }) { users.alice.web.passwordHashFile = "/run/a:b"; };
      remedy = "Write it out";
    };
    "agent of watches that is not installed" = {
      box = web { } // {
        webhook.hookSessionAgent = "pi";
        installAgents = [ "claude" ];
      };
      remedy = "Add it to services.agent-box.installAgents";
    };
    "a second Caddy" = {
      box = web { };
      surroundings.services.caddy.enable = true;
      remedy = "Turn it off";
    };
    "updates of a flake that is relative" = {
      box = update { flake = "nixos"; };
      remedy = "Write it out";
    };
    "updates of an address" = {
      box = update { flake = "/etc/nixos#box"; };
      remedy = "absolute path of a folder";
    };
    "updates to a name with a dot" = {
      box = update { attribute = "box.example.com"; };
      remedy = "nixos-rebuild --flake .#NAME";
    };
    "updates that nobody may start" = {
      box = lib.recursiveUpdate (update { }) { users.alice.mayUpdate = false; };
      remedy = "Set users.<name>.mayUpdate";
    };
    "updates by a pin file" = {
      box = update { pinFile = "/etc/nixos/pin.nix"; };
      remedy = "pinned in the flake.lock";
    };
  };

  warned = {
    "domain of sites beside the box's" = {
      box = web { sitesDomain = "sites.example.com"; };
      remedy = "public suffix";
    };
  };

  accepted = {
    "a browser" = web { };
    "a browser for one of two" = lib.recursiveUpdate (web { }) { users.bob.web.enable = false; };
    "a browser on another port" = web { origins = [ "https://box.example.com:8443" ]; };
    "a domain for sites" = web { sitesDomain = "example-sites.org"; };
    "a second issuer of certificates" = web {
      acmeFallbackDirectory = "https://acme.zerossl.com/v2/DV90";
    };
    "webhooks of a repository of one's own" = web { } // {
      webhook = {
        repo = "example/local-channels";
        hookSessionAgent = "claude";
        watchPolicy."github:example/*".ignoreSenders = [ "@self" ];
      };
    };
    "updates by the only user" = update { };
  };
}
