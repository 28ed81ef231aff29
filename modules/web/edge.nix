# The edge: Caddy with one site for the box. It asks the gate about every request
# but those for the login itself, and hands over to services on UNIX sockets. What
# it is told is in caddyfile/.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.services.agent-box;
  inherit (cfg) web;
  hardening = import ../hardening { inherit lib; };
in
{
  options.services.agent-box.web = {
    certificates = mkOption {
      type = types.enum [
        "acme"
        "internal"
      ];
      default = "acme";
      description = ''
        Where the certificate comes from: `acme` gets one that browsers trust over port 443
        alone, `internal` makes one that they warn of, for machines that the internet does not
        reach.
      '';
    };

    acmeEmail = mkOption {
      type = types.nullOr (types.strMatching "[^[:space:]\"{}]+@[^[:space:]\"{}]+");
      default = null;
      example = "admin@example.com";
      description = "Where the issuer of certificates writes to when something is wrong.";
    };

    acmeDirectory = mkOption {
      type = types.nullOr (types.strMatching "https://[^[:space:]\"{}]+");
      default = null;
      example = "https://acme-staging-v02.api.letsencrypt.org/directory";
      description = "Directory of another ACME issuer. Null: Let's Encrypt.";
    };

    acmeFallbackDirectory = mkOption {
      type = types.nullOr (types.strMatching "https://[^[:space:]\"{}]+");
      default = null;
      example = "https://acme.zerossl.com/v2/DV90";
      description = ''
        Directory of an ACME issuer that is asked where the first one refuses, as it may for a name
        below one that many share. The one of the example needs
        {option}`services.agent-box.web.acmeEmail`, and
        {option}`services.agent-box.web.redirectHttp` since it does not look at port 443.
      '';
    };

    redirectHttp = mkOption {
      type = types.bool;
      default = false;
      description = "Open port 80, too, and send browsers on to HTTPS.";
    };

    http3 = mkOption {
      type = types.bool;
      default = false;
      description = "Offer HTTP/3 and open UDP port 443 for it.";
    };

    caddyfile = mkOption {
      type = types.lines;
      internal = true;
      readOnly = true;
      description = "Configuration of the edge.";
    };
  };

  config = lib.mkIf (cfg.enable && web.enable) {
    assertions = [
      {
        assertion = !(config.services.caddy.enable or false);
        message = "services.caddy.enable: agent-box runs Caddy itself, and two cannot share port 443. Turn it off; sites of your own belong on another machine or behind agent-box.";
      }
    ];

    services.agent-box.web.caddyfile = import ./caddyfile {
      inherit lib pkgs web;
      webhook = cfg.webhook.enable;
    };

    environment.etc."caddy/Caddyfile".text = web.caddyfile;

    # Another version of Caddy may know another language. That has to stop an update before
    # it begins, and not the edge.
    system.checks = [
      (pkgs.runCommand "agent-box-caddyfile" { } ''
        ${pkgs.caddy}/bin/caddy adapt --adapter caddyfile --config ${pkgs.writeText "Caddyfile" web.caddyfile} >$out
      '')
    ];

    users.users.caddy = {
      isSystemUser = true;
      group = "caddy";
      uid = config.ids.uids.caddy;
      home = "/var/lib/caddy";
      description = "Edge of agent-box";
    };
    users.groups.caddy.gid = config.ids.gids.caddy;

    systemd.services.caddy = {
      description = "Edge of the box: certificate, routes, headers";
      wantedBy = [ "multi-user.target" ];
      wants = [ "network-online.target" ];
      after = [
        "network-online.target"
        "agent-box-gate.socket"
      ];
      reloadTriggers = [ web.caddyfile ];
      unitConfig.StartLimitIntervalSec = 0;
      stopIfChanged = false;
      environment.HOME = "/var/lib/caddy";
      serviceConfig = hardening.edge // {
        Type = "notify";
        User = "caddy";
        Group = "caddy";
        ExecStart = "${pkgs.caddy}/bin/caddy run --config /etc/caddy/Caddyfile --adapter caddyfile";
        # Checks it first: a bad one changes nothing.
        ExecReload = "${pkgs.caddy}/bin/caddy reload --config /etc/caddy/Caddyfile --adapter caddyfile --force";
        Restart = "always";
        RestartSec = "100ms";
        RestartSteps = 10;
        RestartMaxDelaySec = "5s";
        # At once: a polite end would wait for every open page.
        KillSignal = "SIGQUIT";
        SuccessExitStatus = 2;
        StateDirectory = "caddy";
        StateDirectoryMode = "0700";
        RuntimeDirectory = "caddy";
        RuntimeDirectoryMode = "0700";
        LimitNOFILE = 1048576;
        # Caddy keeps its heap below that by itself. What strangers hold open beyond it costs
        # the connections, and not the box.
        MemoryMax = "25%";
        # A line for each request: strangers must not replace all else in the journal.
        LogRateLimitIntervalSec = "1min";
        LogRateLimitBurst = 1000;
      };
    };

    networking.firewall = {
      allowedTCPPorts = [ 443 ] ++ lib.optional web.redirectHttp 80;
      allowedUDPPorts = lib.optional web.http3 443;
    };
  };
}
