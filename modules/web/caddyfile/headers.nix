# Headers of every answer of the edge, as a Caddy snippet.
{ lib }:
let
  # Of answers that are no pages: nothing may be loaded and nothing run.
  policy = "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'";

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
''
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
  	header ?Content-Security-Policy "${policy}"
  }
''
