# The site of the box. What matches no route is 404 after the login.
{
  lib,
  web,
  webhook,
  routesOf,
}:
let
  # Braces would be placeholders of Caddy's.
  worker = builtins.replaceStrings [ "{" ] [ "\\{" ] (
    lib.concatStrings [
      "addEventListener(\"install\",()=>skipWaiting());"
      "addEventListener(\"activate\",event=>event.waitUntil((async()=>{"
      "await registration.unregister();"
      "const pages=await clients.matchAll({type:\"window\"});"
      "for(const page of pages)page.navigate(page.url).catch(()=>{});"
      "})()));\n"
    ]
  );
in
''
  https://${web.domain} {
  	import policy
  	log box {
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
  		import patience-with-strangers

  		# Only the beginning of a cookie names a file (pkgs/agent-box/src/agent_box/gate/known.py).
  		vars gate gate
  		@cookie header_regexp cookie Cookie (?:^|;\s*)__Host-agent_box=([A-Za-z0-9_-]{16})[A-Za-z0-9_-]{27}(?:;|$)
  		route @cookie {
  			@known file {
  				root /run/agent-box-gate/known
  				try_files /{re.cookie.1}
  			}
  			vars @known gate known
  		}

  		# What only we may say.
  		request_header -X-Agent-Box-*
  		request_header -X_Agent_Box_*
  		import own-cookies
  		@upgrade header Upgrade *
  		request_header @upgrade X-Agent-Box-Upgrade websocket
  		# A client names in it what is not to be handed on: here, what the gate judges by.
  		request_header -Connection

  		# The box has no service workers. Where a browser looks after one that a process of a
  		# user once left in it, it gets one that ends itself.
  		@worker header Service-Worker *
  		handle @worker {
  			header Content-Type "text/javascript; charset=utf-8"
  			respond `${worker}` 200
  		}

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
  ${lib.optionalString webhook ''
    		# What a receiver answers where there is no such sender, for names that nobody has.
    		@no-receiver vars_regexp {http.request.uri} ^/[A-Za-z0-9_-][A-Za-z0-9._-]*/webhook(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*/?([?].*)?$
    		handle @no-receiver {
    			header Content-Security-Policy "${import ./sandbox.nix}"
    			respond "unknown source" 404
    		}
  ''}
  		handle {
  			route {
  				import signed-in ""
  				error 404
  			}
  		}
  	}

  	handle_errors {
  		# In the line of the request itself, in place of one more (global.nix).
  		log_append error {err.message}
  		import policy
  		import errors
  	}
  }
''
