# How the edge reaches the gate, services of users, and its own files. Caddy snippets.
{ pages }:
let
  kept = "/var/lib/agent-box-assets";

  # Strangers are asked about at one socket, and at another those whose cookie the gate knows:
  # so they wait for no stranger.
  gate = "unix//run/agent-box-gate/{vars.gate}.sock";

  # Of the pages of the box, which are files.
  policy = "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; frame-src 'self'; connect-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'self'";
in
''
  # How the gate is reached. It must never take a request for a WebSocket.
  (gate) {
  	header_up -Connection
  	header_up -Upgrade
  	# Whole before the gate hears of it; no body is larger.
  	request_buffers 17KiB
  	transport http {
  		dial_timeout 2s
  		response_header_timeout 15s
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
  	import patience-with-users
  }

  # Pages that the gate answers itself, with the credentials that it needs to.
  (of-the-gate) {
  	vars part "The login service"
  	vars unit agent-box-gate
  	# At once, where the head says it: the gate would close while the rest is still on its way.
  	@too-much header_regexp Content-Length ^0*(1638[5-9]|1639[0-9]|16[4-9][0-9]{2}|1[7-9][0-9]{3}|[2-9][0-9]{4}|[1-9][0-9]{5,})$
  	error @too-much 413
  	request_body {
  		max_size 16KiB
  	}
  	reverse_proxy ${gate} {
  		import gate
  	}
  }

  # Files that belong to root, by the address that a route has written.
  (from-disk) {
  	root * ${pages}
  	file_server
  }

  # A page of a user: the arguments are whose, and which.
  (page) {
  	route {
  		import signed-in {args[0]}
  		header Content-Security-Policy "${policy}"
  		rewrite * /pages/{args[0]}/{args[1]}.html
  		header Cache-Control no-store
  		import from-disk
  	}
  }

  # Scripts and styles, under an address that changes with them. A page of before an update
  # gets those of its own version, which are kept a while (../pages.nix); else what there is,
  # and must not keep it.
  (asset) {
  	route {
  		import signed-in {args[0]}
  		rewrite * /assets/{re.asset.1}/{re.asset.2}
  		root * ${pages}
  		@there file {path}
  		header @there Cache-Control "private, max-age=31536000, immutable"
  		@kept {
  			not file {path}
  			file {
  				root ${kept}
  				try_files {path}
  			}
  		}
  		header @kept Cache-Control "private, max-age=31536000, immutable"
  		# `root` takes the first that matches.
  		vars @kept root ${kept}
  		try_files {path} /assets/current/{re.asset.2}
  		@manifest path *.webmanifest
  		header @manifest Content-Type application/manifest+json
  		@style path *.css
  		header @style Content-Type "text/css; charset=utf-8"
  		@script path *.js
  		header @script Content-Type "text/javascript; charset=utf-8"
  		file_server
  	}
  }

  # From here on a service of one user gets the request. It learns who is signed
  # in, never with what.
  (backend) {
  	request_header -Cookie
  	request_header -Authorization
  	request_header -Proxy-Authorization
  	request_header -X-Agent-Box-Owner
  	request_header -X-Agent-Box-Upgrade
  	request_header -Connection
  	request_header -Upgrade
  }

  # The service of the workspace: the arguments are whose, what its answer is to be taken
  # for, and what belongs to that.
  (workspace) {
  	route {
  		import signed-in {args[0]}
  		vars part "The workspace service"
  		vars unit agent-box-settings-{args[0]}
  		import backend
  		import nothing-early
  		reverse_proxy unix//run/agent-box-settings/{args[0]}.sock {
  			import {args[1]} {args[2:]}
  		}
  	}
  }

  # Whatever the service of a user says, the answer is what the edge makes of it
  # (answers.nix).
  (of-a-user) {
  	header_down -*
  	# A reload must not end what people have open.
  	stream_close_delay 168h
  	# While the service restarts.
  	lb_try_duration 3s
  	lb_try_interval 100ms
  }

  # The head of the answer that opens a WebSocket. Caddy hands it on as it is, cookies
  # included.
  (switched) {
  	vars extensions none
  	header {
  		match {
  			header Sec-WebSocket-Extensions none
  		}
  		-Sec-WebSocket-Extensions
  		defer
  	}
  	header {
  		-*
  		Connection Upgrade
  		Upgrade websocket
  		Sec-WebSocket-Accept {http.reverse_proxy.header.Sec-Websocket-Accept}
  		Sec-WebSocket-Extensions {vars.extensions}
  		Sec-WebSocket-Protocol tty
  		defer
  	}
  }
''
