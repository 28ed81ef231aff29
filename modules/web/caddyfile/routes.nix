# The routes of one user. They match the address exactly as the gate judged it, letter
# by letter: no cleaned-up path, no second spelling.
{
  lib,
  terminalPolicy,
  terminalTag,
  webhook,
}:
user:
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
  				reverse_proxy unix//run/agent-box-webhook/${user}.sock {
  					# Nearly all deliveries are whole before the receiver hears of them.
  					request_buffers 64KiB
  					import of-a-user
  				}
  			}
  		}

''
+ ''
  		@${user}-terminal vars_regexp terminal {http.request.uri} ^/${user}/t/([A-Za-z0-9][A-Za-z0-9_-]{0,149})(?:/?|/(ws|token))(?:[?].*)?$
  		handle @${user}-terminal {
  			route {
  				import signed-in ${user}
  				vars part "The terminal service"
  				vars unit agent-box-terminal-${user}
  				rewrite * /{http.regexp.terminal.2}?arg={http.regexp.terminal.1}&arg={http.request.header.X-Agent-Box-Login}
  				import backend
  				header ?Content-Security-Policy "${terminalPolicy}"
''
# The page is large and always the same. Browsers keep it and ask whether it still is,
# so that whoever is not signed in any more gets none.
+ lib.optionalString (terminalTag != null) ''
  				@${user}-page vars {http.regexp.terminal.2} ""
  				handle @${user}-page {
  					@${user}-known header If-None-Match "\"${terminalTag}\""
  					handle @${user}-known {
  						header Cache-Control "private, no-cache"
  						header ETag "\"${terminalTag}\""
  						respond 304
  					}
  					reverse_proxy unix//run/agent-box-terminal/${user}/ttyd.sock {
  						import of-a-user
  						header_down Cache-Control "private, no-cache"
  						header_down ETag "\"${terminalTag}\""
  					}
  				}
''
+ ''
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
''
