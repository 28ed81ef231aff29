# The site of the box. What matches no route is 404 after the login.
{
  lib,
  web,
  routesOf,
}:
''
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
  		import own-cookies
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
''
