# The configuration of the edge, put together from its parts.
{
  lib,
  pkgs,
  web,
  webhook,
}:
let
  headers = import ./headers.nix { inherit lib pkgs; };
  routesOf = import ./routes.nix {
    inherit lib webhook;
    terminalPolicy = headers.terminal;
    inherit (headers) terminalTag;
  };

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
  # Whether the page of this ttyd is one whose script is known.
  knowsTerminal = headers.terminalScripts ? ${pkgs.ttyd.version};

  text = lib.concatStringsSep "\n" (
    [
      (import ./global.nix { inherit lib web; })
      (headers.text + "\n" + import ./snippets.nix + "\n" + import ./cookies.nix)
      (import ./errors.nix)
      (import ./site.nix { inherit lib web routesOf; })
      others
    ]
    ++ lib.optional web.redirectHttp plain
    # Sites of users. The variable is for trying another file before it takes the place of this.
    ++ [ "import {$AGENT_BOX_SITES:/var/lib/agent-box-sites/*.caddy}\n" ]
  );
}
