# The edge: Caddy with one site for the box. It asks the gate about every request
# but those for the login itself, and hands over to services on UNIX sockets.
#
# Routes match the address exactly as the gate judged it, letter by letter: no
# cleaned-up path, no second spelling. What matches nothing is 404 after the login.
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
  hardening = import ../hardening.nix { inherit lib; };
  pages = import ./pages.nix;

  gate = "unix//run/agent-box-gate/gate.sock";

  # The page of ttyd is one file with everything inline; these are its script's hashes.
  terminalScripts = {
    "1.7.7" = "'sha256-UShFG+HZRbfj/zNyufEvE+saGZtVlnuG/RgiawovSUc='";
  };
  terminalScript = terminalScripts.${pkgs.ttyd.version} or "'unsafe-inline'";

  policies = {
    # Of answers that bring none themselves: nothing may be loaded and nothing run.
    default = "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'";
    # xterm makes style sheets while it runs, and has its cursor and fonts inline.
    terminal = "default-src 'none'; script-src ${terminalScript}; style-src 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";
  };

  # What pages of the box have no use for. The clipboard stays allowed.
  permissions = lib.concatMapStringsSep ", " (name: "${name}=()") [
    "accelerometer"
    "autoplay"
    "camera"
    "display-capture"
    "geolocation"
    "gyroscope"
    "hid"
    "idle-detection"
    "magnetometer"
    "microphone"
    "midi"
    "payment"
    "serial"
    "usb"
    "xr-spatial-tracking"
  ];

  global = ''
    {
    	admin unix//run/caddy/admin.sock|0600
    	persist_config off
    	auto_https disable_redirects
    	# Streams of events and uploads in progress end by themselves after a reload.
    	grace_period 10m
    	servers {
    		protocols h1 h2${lib.optionalString web.http3 " h3"}
    		max_header_size 32KiB
    		timeouts {
    			read_header 10s
    			idle 5m
    		}
    	}
    ${certificates}}
  '';

  certificates =
    if web.certificates == "internal" then
      ''
        	local_certs
        	skip_install_trust
      ''
    else
      ''
        	cert_issuer acme {
        ${lib.optionalString (!web.redirectHttp) "		disable_http_challenge\n"}${
          lib.optionalString (web.acmeEmail != null) "		email ${web.acmeEmail}\n"
        }${lib.optionalString (web.acmeDirectory != null) "		dir ${web.acmeDirectory}\n"}	}
      '';

  snippets = ''
    # Headers of every answer, whoever gives it.
    (policy) {
    	header {
    		-Server
    		-Via
    		-Alt-Svc
    		Strict-Transport-Security max-age=31536000
    		X-Content-Type-Options nosniff
    		Referrer-Policy same-origin
    		Permissions-Policy "${permissions}"
    		X-Frame-Options SAMEORIGIN
    		Cross-Origin-Opener-Policy same-origin
    		Cross-Origin-Resource-Policy same-origin
    		defer
    	}
    	header ?Cache-Control no-store
    	header ?Content-Security-Policy "${policies.default}"
    }

    # How the gate is reached. It must never take a request for a WebSocket.
    (gate) {
    	header_up -Connection
    	header_up -Upgrade
    	transport http {
    		dial_timeout 2s
    		response_header_timeout 30s
    	}
    }

    # Lets pass who is signed in; the argument is whose things are asked for.
    (signed-in) {
    	vars part "The login service"
    	vars unit agent-box-gate
    	forward_auth ${gate} {
    		uri /auth
    		copy_headers X-Agent-Box-User X-Agent-Box-Login
    		header_up X-Agent-Box-Owner {args[0]}
    		import gate
    	}
    }

    # Pages that the gate answers itself, with the credentials that it needs to.
    (of-the-gate) {
    	vars part "The login service"
    	vars unit agent-box-gate
    	request_body {
    		max_size 16KiB
    	}
    	reverse_proxy ${gate} {
    		import gate
    	}
    }

    # From here on a service of one user gets the request. It learns who is signed
    # in, never with what, and sets no cookies on an origin that all users share.
    (backend) {
    	request_header -Cookie
    	request_header -Authorization
    	request_header -Proxy-Authorization
    	request_header -X-Agent-Box-Owner
    	request_header -X-Agent-Box-Upgrade
    }

    (of-a-user) {
    	header_down -Set-Cookie
    	header_down -Clear-Site-Data
    	header_down -Access-Control-*
    	header_down -Service-Worker-Allowed
    	# A reload must not end what people have open.
    	stream_close_delay 168h
    	# While the service restarts.
    	lb_try_duration 3s
    	lb_try_interval 100ms
    }
  '';

  routesOf = user: ''
    		# A receiver checks signatures itself. There is none yet.
    		@${user}-webhook vars_regexp {http.request.uri} ^/${user}/webhook(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*/?([?].*)?$
    		handle @${user}-webhook {
    			error 404
    		}

    		@${user}-terminal vars_regexp terminal {http.request.uri} ^/${user}/t/([A-Za-z0-9][A-Za-z0-9_-]{0,149})(?:/?|/(ws|token))(?:[?].*)?$
    		handle @${user}-terminal {
    			route {
    				import signed-in ${user}
    				vars part "The terminal service"
    				vars unit agent-box-terminal-${user}
    				rewrite * /{http.regexp.terminal.2}?arg={http.regexp.terminal.1}&arg={http.request.header.X-Agent-Box-Login}
    				import backend
    				header ?Content-Security-Policy "${policies.terminal}"
    				reverse_proxy unix//run/agent-box-terminal/${user}/ttyd.sock {
    					import of-a-user
    				}
    			}
    		}

    		@${user} vars_regexp {http.request.uri} ^/${user}(/.*|[?].*)?$
    		handle @${user} {
    			route {
    				import signed-in ${user}
    				vars part "The workspace service"
    				vars unit agent-box-settings-${user}
    				import backend
    				reverse_proxy unix//run/agent-box-settings/${user}.sock {
    					import of-a-user
    				}
    			}
    		}
  '';

  site = ''
    https://${web.domain} {
    	import policy
    	log {
    		output stderr
    		format filter {
    			wrap json
    			fields {
    				request>headers delete
    				request>tls delete
    				request>uri regexp [?].* ?...
    				resp_headers delete
    				user_id delete
    			}
    		}
    	}

    	# In this very order: Caddy would sort directives outside of a route.
    	route {
    		# What only we may say.
    		request_header -X-Agent-Box-*
    		request_header -X_Agent_Box_*
    		@upgrade header Upgrade *
    		request_header @upgrade X-Agent-Box-Upgrade websocket

    		# No events: what is compressed is held back until there is enough of it.
    		encode {
    			zstd
    			gzip
    			match {
    				header Content-Type text/html*
    				header Content-Type text/css*
    				header Content-Type text/javascript*
    				header Content-Type text/plain*
    				header Content-Type application/json*
    				header Content-Type application/manifest+json*
    				header Content-Type image/svg+xml*
    			}
    		}

    		@other-method not method GET HEAD POST PUT PATCH DELETE OPTIONS
    		handle @other-method {
    			error 405
    		}

    		@gate-open vars_regexp {http.request.uri} ^/(login([?].*)?|logout|gate/assets/[A-Za-z0-9._-]+)$
    		handle @gate-open {
    			route {
    				import of-the-gate
    			}
    		}

    		@gate vars_regexp {http.request.uri} ^/gate/[a-z]+(/[A-Za-z0-9_-]+)?([?].*)?$
    		handle @gate {
    			route {
    				import signed-in ""
    				import of-the-gate
    			}
    		}

    		@root vars_regexp {http.request.uri} ^/([?].*)?$
    		handle @root {
    			route {
    				import signed-in ""
    				redir * /{http.request.header.X-Agent-Box-User}/{http.request.uri.prefixed_query} 302
    			}
    		}

    ${lib.concatMapStringsSep "\n" routesOf web.users}
    		handle {
    			route {
    				import signed-in ""
    				error 404
    			}
    		}
    	}

    	handle_errors {
    		import policy
    		import errors
    	}
    }
  '';

  # Whoever asks for another name than the box's gets nothing of the box.
  others = ''
    https:// {
    	import policy
    	respond "This is not the address of this box.
    " 421
    }
  '';

  plain = ''
    http://${web.domain} {
    	import policy
    	redir https://${web.domain}{http.request.uri} 308
    }

    http:// {
    	import policy
    	respond "This is not the address of this box.
    " 421
    }
  '';
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

    warnings = lib.optional (!terminalScripts ? ${pkgs.ttyd.version}) "services.agent-box.web: ttyd ${pkgs.ttyd.version} is not known to agent-box, so that its page may run any inline script. Add the hash of its script to modules/web/edge.nix.";

    services.agent-box.web.caddyfile = lib.concatStringsSep "\n" (
      [
        global
        snippets
        pages
        site
        others
      ]
      ++ lib.optional web.redirectHttp plain
      # Sites of users. The variable is for trying another file before it takes the place of this.
      ++ [ "import {$AGENT_BOX_SITES:/var/lib/agent-box-sites/*.caddy}\n" ]
    );

    environment.etc."caddy/Caddyfile".text = web.caddyfile;

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
      };
    };

    networking.firewall = {
      allowedTCPPorts = [ 443 ] ++ lib.optional web.redirectHttp 80;
      allowedUDPPorts = lib.optional web.http3 443;
    };
  };
}
