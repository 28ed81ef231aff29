# What the edge itself answers when something is wrong: a page for people, JSON for
# the pages' scripts, a line for programs. A Caddy snippet.
let
  style = "body{font:1.05rem/1.5 system-ui,sans-serif;max-width:34rem;margin:15vh auto;padding:0 1rem;color:#222;background:#fff}code{background:#eee;padding:.1em .3em}a{color:#0b57d0}@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}code{background:#333}a{color:#8ab4f8}}";

  hash = builtins.convertHash {
    hash = builtins.hashString "sha256" style;
    hashAlgo = "sha256";
    toHashFormat = "base64";
  };

  policy = "default-src 'none'; style-src 'sha256-${hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

  # Braces would be placeholders of Caddy's.
  escaped = builtins.replaceStrings [ "{" ] [ "\\{" ] style;

  page =
    {
      title,
      text,
      again ? false,
    }:
    "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">${
      if again then "<meta http-equiv=\"refresh\" content=\"5\">" else ""
    }<title>${title}</title><style>${escaped}</style></head><body><main><h1>${title}</h1>${text}</main></body></html>";
in
''
  (errors) {
  	@down vars_regexp {http.error.status_code} ^(500|502|503|504)$
  	@page header Accept *text/html*
  	@script header Accept *application/json*
  	handle @down {
  		header Retry-After 5
  		handle @page {
  			header Content-Type "text/html; charset=utf-8"
  			header Content-Security-Policy "${policy}"
  			respond `${
       page {
         title = "Not answering";
         again = true;
         text = "<p>{vars.part} of this box does not answer. It is started again by itself, and this page looks every five seconds. Your sessions go on meanwhile; nothing is lost.</p><p>If this stays, somebody with a shell on the box can look: <code>systemctl status {vars.unit}</code> and <code>journalctl -u {vars.unit}</code></p>";
       }
     }` 503
  		}
  		handle @script {
  			header Content-Type application/json
  			respond `\{"error":\{"code":"unavailable","message":"{vars.part} of this box does not answer. It is started again by itself: try again in a moment."}}` 503
  		}
  		handle {
  			respond "{vars.part} of this box does not answer. It is started again by itself; else see: systemctl status {vars.unit}
  " 503
  		}
  	}
  	handle {
  		handle @page {
  			header Content-Type "text/html; charset=utf-8"
  			header Content-Security-Policy "${policy}"
  			respond `${
       page {
         title = "{http.error.status_code} {http.error.status_text}";
         text = "<p>There is nothing for you at this address. <a href=\"/\">Go to your workspace</a></p>";
       }
     }` {http.error.status_code}
  		}
  		handle {
  			respond "{http.error.status_code} {http.error.status_text}
  " {http.error.status_code}
  		}
  	}
  }
''
