# The routes of one user. They match the address exactly as the gate judged it, letter
# by letter: no cleaned-up path, no second spelling.
{
  lib,
  pages,
  webhook,
}:
user:
let
  # A file of the edge's own, for who is signed in.
  page = name: pattern: ''
    		@${user}-${name} vars_regexp {http.request.uri} ^/${user}/${pattern}(?:[?].*)?$
    		handle @${user}-${name} {
    			import page ${user} ${name}
    		}

  '';

  # Answers of a service that runs as the user.
  service = kind: pattern: argument: ''
    		@${user}-${kind} vars_regexp ${kind} {http.request.uri} ^/${user}/${pattern}(?:[?].*)?$
    		handle @${user}-${kind} {
    			import workspace ${user} ${kind} ${argument}
    		}

  '';

  slash = ''
    		@${user}-slash vars_regexp slash {http.request.uri} ^(/${user}(?:/settings|/downloads)?)(?:[?].*)?$
    		handle @${user}-slash {
    			route {
    				import signed-in ${user}
    				redir * {re.slash.1}/ 307
    			}
    		}

  '';
in
lib.optionalString webhook ''
  		# Nobody signs in here: the receiver checks the signature of every delivery.
  		@${user}-webhook vars_regexp {http.request.uri} ^/${user}/webhook(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*/?([?].*)?$
  		handle @${user}-webhook {
  			route {
  				vars part "The webhook service"
  				vars unit agent-box-webhook-${user}
  				request_body {
  					max_size 27MiB
  				}
  				uri strip_prefix /${user}/webhook
  				import backend
  				import nothing-early
  				reverse_proxy unix//run/agent-box-webhook/${user}.sock {
  					import receipt
  					# Nearly all deliveries are whole before the receiver hears of them.
  					request_buffers 64KiB
  				}
  			}
  		}

''
+ ''
  		@${user}-terminal vars_regexp terminal {http.request.uri} ^/${user}/t/[A-Za-z0-9][A-Za-z0-9_-]{0,149}/?(?:[?].*)?$
  		handle @${user}-terminal {
  			route {
  				import signed-in ${user}
  				import ${pages}/terminal/page.caddy
  				rewrite * /terminal/index.html
  				import from-disk
  			}
  		}

  		# What the page of a terminal asks for first: a secret of its own that it does not need.
  		@${user}-token vars_regexp {http.request.uri} ^/${user}/t/[A-Za-z0-9][A-Za-z0-9_-]{0,149}/token(?:[?].*)?$
  		handle @${user}-token {
  			route {
  				import signed-in ${user}
  				header Content-Type application/json
  				respond `\{"token":""}` 200
  			}
  		}

  		@${user}-socket vars_regexp socket {http.request.uri} ^/${user}/t/([A-Za-z0-9][A-Za-z0-9_-]{0,149})/ws(?:[?].*)?$
  		handle @${user}-socket {
  			route {
  				import signed-in ${user}
  				vars part "The terminal service"
  				vars unit agent-box-terminal-${user}
  				@plain not header Upgrade websocket
  				error @plain 404
  				rewrite * /ws?arg={re.socket.1}&arg={http.request.header.X-Agent-Box-Login}
  				import backend
  				request_header Connection Upgrade
  				request_header Upgrade websocket
  				import switched
  				reverse_proxy unix//run/agent-box-terminal/${user}.sock {
  					import switch
  				}
  			}
  		}

''
+ page "workspace" ""
+ page "settings" "settings/"
+ page "downloads" "downloads/(?:[^?]*/)?"
+ slash
+ ''
  		@${user}-asset vars_regexp asset {http.request.uri} ^/${user}/assets/([0-9a-f]{16})/([A-Za-z0-9-]+[.](?:js|css|svg|webmanifest))$
  		handle @${user}-asset {
  			import asset ${user}
  		}

''
+ service "stream" "events" ""
+ service "file" "(downloads/[^?]+|api/sessions/[^/?]+/transcript)" "/${user}/{re.file.1}/"
+ service "upload" "api/partial-uploads(?:/[^?]*)?" ""
+ service "data" "api/[^?]*" ""
+ ''
  		@${user} vars_regexp {http.request.uri} ^/${user}(/.*|[?].*)?$
  		handle @${user} {
  			route {
  				import signed-in ${user}
  				error 404
  			}
  		}
''
