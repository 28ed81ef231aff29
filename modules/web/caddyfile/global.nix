# What holds for the whole edge: protocols, limits, where certificates come from.
{ lib, web }:
let
  issuer = directory: ''
    	cert_issuer acme {
    ${lib.optionalString (!web.redirectHttp) "		disable_http_challenge\n"}${
      lib.optionalString (web.acmeEmail != null) "		email ${web.acmeEmail}\n"
    }${lib.optionalString (directory != null) "		dir ${directory}\n"}	}
  '';

  certificates =
    if web.certificates == "internal" then
      ''
        	local_certs
        	skip_install_trust
      ''
    else
      issuer web.acmeDirectory
      + lib.optionalString (web.acmeFallbackDirectory != null) (issuer web.acmeFallbackDirectory);
in
''
  {
  	admin unix//run/caddy/admin.sock|0600
  	persist_config off
  	auto_https disable_redirects
  	# Streams of events and uploads in progress end by themselves after a reload.
  	grace_period 10m
  	# What went wrong with a request to the box is told in the line of that request.
  	log default {
  		exclude http.log.error.box
  	}
  	servers {
  		protocols h1 h2${lib.optionalString web.http3 " h3"}
  		# All cookies that a browser keeps for one domain: scripts of sites can fill it.
  		max_header_size ${if web.sitesDomain == null then "1MiB" else "32KiB"}
  		timeouts {
  			read_header 10s
  			idle 5m
  		}
  	}
  ${certificates}}
''
