# The configuration of the edge, put together from its parts.
{
  lib,
  pkgs,
  web,
  webhook,
}:
let
  inherit (web) pages;
  routesOf = import ./routes.nix { inherit lib pages webhook; };

  # Whoever asks for another name than the box's gets nothing of the box.
  others = ''
    https:// {
    	import policy
    	import patience-with-strangers
    	respond "This is not the address of this box.
    " 421
    }
  '';

  plain = ''
    http://${web.domain} {
    	import policy
    	import patience-with-strangers
    	redir https://${web.domain}{http.request.uri} 308
    }

    http:// {
    	import policy
    	import patience-with-strangers
    	respond "This is not the address of this box.
    " 421
    }
  '';
in
lib.concatStringsSep "\n" (
  [
    (import ./global.nix { inherit lib web; })
    (import ./headers.nix { inherit lib; })
    (import ./patience.nix { inherit lib pkgs; })
    (import ./snippets.nix { inherit pages; })
    (import ./answers.nix { inherit lib; })
    (import ./cookies.nix)
    (import ./errors.nix)
    (import ./site.nix {
      inherit
        lib
        web
        webhook
        routesOf
        ;
    })
    others
  ]
  ++ lib.optional web.redirectHttp plain
  # Sites of users. The variable is for trying another file before it takes the place of this.
  ++ [ "import {$AGENT_BOX_SITES:/var/lib/agent-box-sites/*.caddy}\n" ]
)
