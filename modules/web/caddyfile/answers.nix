# What becomes of an answer that a process of a user gives. The origin of the box shows
# nothing that such a process wrote: pages are files (pages.nix), and of everything else
# the edge says itself what it is. A header passes only if it is named here, and only with
# a value of the form that it should have. Caddy snippets.
{ lib }:
let
  sandbox = import ./sandbox.nix;

  lines = lib.concatMapStrings (line: "			${line}\n");

  # Lets a header pass whose value matches.
  passing =
    headers:
    lib.concatLists (
      lib.mapAttrsToList (
        name: pattern:
        let
          sent = "{http.reverse_proxy.header.${name}}";
        in
        [
          "@sent-${name} vars_regexp ${sent} `^(?:${pattern})$`"
          "header @sent-${name} ${name} \"${sent}\""
        ]
      ) headers
    );

  number = "[0-9]{1,18}";

  # Go's spelling of the names, which is that of the placeholders.
  length."Content-Length" = number;

  answers =
    more:
    lines (
      [ "header Content-Security-Policy \"${sandbox}\"" ] ++ more ++ [ "copy_response" ]
    );

  # Failures of any service: a page of the edge's own for people, data for scripts.
  failures = ''
    	@failed status 4xx 5xx
    	handle_response @failed {
    		route {
    			@people header Accept *text/html*
    			error @people "refused by the service" {http.reverse_proxy.status_code}
    ${answers (
      [ "header Content-Type application/json" ]
      ++ passing (length // { Tus-Version = "[0-9.,]{1,40}"; })
    )}		}
    	}
  '';

  snippet = name: more: ''
    (${name}) {
    	import of-a-user
    ${lib.concatMapStrings (line: "	${line}\n") (lib.filter (line: line != "") (lib.splitString "\n" more))}}
  '';

  kind = content: ''
    handle_response {
    	route {
    ${answers content}	}
    }
  '';
in
lib.concatStringsSep "\n" [
  # 1xx answers come with headers of their own, and pass before anything else is judged.
  # Not for WebSockets, which begin with one.
  ''
    (nothing-early) {
    	header {
    		match {
    			status 1xx
    		}
    		-*
    		defer
    	}
    }
  ''

  (snippet "data" (
    failures + kind ([ "header Content-Type application/json" ] ++ passing length)
  ))

  (snippet "stream" (
    failures
    + kind [
      "header Content-Type \"text/event-stream; charset=utf-8\""
      "header Cache-Control \"no-store, no-transform\""
    ]
  ))

  # Files, which leave the browser as downloads unless they are of a kind that is shown.
  # A redirection says that the name is one of a directory, whose page is the edge's.
  (snippet "file" (
    ''
      @moved status 301 302 303 307 308
      handle_response @moved {
      	redir * {args[0]} 307
      }
    ''
    + failures
    + kind (
      [
        "header Content-Type application/octet-stream"
        "header Content-Disposition attachment"
        "header Cache-Control \"private, no-cache\""
      ]
      ++ passing (
        length
        // {
          Content-Type = "text/plain; charset=utf-8|image/(?:png|jpeg|gif|webp)";
          Content-Disposition = ''(?:attachment|inline); filename="[A-Za-z0-9._ -]{0,255}"; filename[*]=UTF-8'''[A-Za-z0-9._~%-]{0,800}'';
          Content-Range = "bytes (?:${number}-${number}|[*])/${number}";
          Accept-Ranges = "bytes";
          Etag = ''"[0-9a-f-]{1,60}"'';
          Last-Modified = "[A-Za-z0-9,: ]{20,40}";
        }
      )
    )
  ))

  # Uploads in parts (tus).
  (snippet "upload" (
    failures
    + kind (
      [
        "header Content-Type application/json"
        "header Tus-Resumable 1.0.0"
      ]
      ++ passing (
        length
        // {
          Location = "/[a-z0-9_-]+/api/partial-uploads/[A-Za-z0-9_-]{1,80}";
          Content-Location = "/[a-z0-9_-]+/api/uploads/[A-Za-z0-9._~%-]{1,800}";
          Tus-Version = "[0-9.,]{1,40}";
          Tus-Extension = "[a-z,-]{1,200}";
          Upload-Length = number;
          Upload-Offset = number;
        }
      )
    )
  ))

  # The receiver of webhooks, whose answers are read by senders.
  (snippet "receipt" (
    kind (
      [ "header Content-Type \"text/plain; charset=utf-8\"" ]
      ++ passing (
        length
        // {
          Content-Type = "application/json";
          Retry-After = "[0-9]{1,6}";
          Allow = "[A-Z, ]{1,60}";
        }
      )
    )
  ))

  # The socket of a terminal: nothing but the switch to another protocol.
  ''
    (switch) {
    	import of-a-user
    	@switched status 101
    	handle_response @switched {
    		route {
    			@compressed vars_regexp {http.reverse_proxy.header.Sec-Websocket-Extensions} `^permessage-deflate[a-z0-9_=; ]{0,100}$`
    			vars @compressed extensions "{http.reverse_proxy.header.Sec-Websocket-Extensions}"
    			copy_response
    		}
    	}
    	handle_response {
    		error "no terminal" 502
    	}
    }
  ''
]
