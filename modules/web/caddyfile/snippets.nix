# How the edge reaches the gate and services of users. Caddy snippets.
let
  # Strangers are asked about at one socket, and at another those whose cookie the gate knows:
  # so they wait for no stranger.
  gate = "unix//run/agent-box-gate/{vars.gate}.sock";
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
''
