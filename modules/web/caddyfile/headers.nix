# Headers of every answer of the edge: a Caddy snippet, and the policy for the page
# of a terminal, which is not ours.
{ lib, pkgs }:
let
  # The page of ttyd is one file with everything inline; these are its script's hashes.
  terminalScripts = {
    "1.7.7" = "'sha256-UShFG+HZRbfj/zNyufEvE+saGZtVlnuG/RgiawovSUc='";
  };
  terminalScript = terminalScripts.${pkgs.ttyd.version} or "'unsafe-inline'";

  policies = {
    # Of answers that bring none themselves: nothing may be loaded and nothing run.
    default = "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'";
    # xterm makes style sheets while it runs, and has its cursor and fonts inline.
    terminal = "default-src 'none'; script-src ${terminalScript}; style-src 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";
  };

  # What pages of the box have no use for. The clipboard stays allowed.
  permissions = lib.concatMapStringsSep ", " (name: "${name}=()") [
    "accelerometer"
    "autoplay"
    "camera"
    "display-capture"
    "geolocation"
    "gyroscope"
    "hid"
    "idle-detection"
    "magnetometer"
    "microphone"
    "midi"
    "payment"
    "serial"
    "usb"
    "xr-spatial-tracking"
  ];
in
{
  inherit terminalScripts;
  inherit (policies) terminal;

  # Names the content of ttyd's page, which does not depend on who asks; null where that
  # is not known.
  terminalTag =
    if terminalScripts ? ${pkgs.ttyd.version} then
      "${pkgs.ttyd.version}-${lib.substring 8 16 terminalScript}"
    else
      null;

  text = ''
    # Headers of every answer, whoever gives it.
    (policy) {
    	header {
    		-Server
    		-Via
    		Strict-Transport-Security max-age=31536000
    		X-Content-Type-Options nosniff
    		Referrer-Policy same-origin
    		Permissions-Policy "${permissions}"
    		X-Frame-Options SAMEORIGIN
    		Cross-Origin-Opener-Policy same-origin
    		Cross-Origin-Resource-Policy same-origin
    		defer
    	}
    	header ?Cache-Control no-store
    	header ?Content-Security-Policy "${policies.default}"
    }
  '';
}
