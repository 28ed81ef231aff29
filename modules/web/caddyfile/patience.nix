# How long the edge waits for a body to come and for an answer to be taken. Caddy snippets.
{ lib, pkgs }:
let
  # Caddy counts from here, whatever came in between. Later versions have no such setting:
  # there, whoever is silent for a minute is given up.
  settable = lib.versionOlder pkgs.caddy.version "2.12";

  limits =
    read: write:
    lib.optionalString settable ''
      	request_body {
      		read_timeout ${read}
      		write_timeout ${write}
      	}
    '';
in
''
  # Strangers have next to nothing to send and to fetch. In the time to read a service has to
  # answer, too: a connection of HTTP/1.1 ends with it.
  (patience-with-strangers) {
  ${limits "20s" "60s"}}

  # Uploads and downloads take their time, and streams of events have no end.
  (patience-with-users) {
  ${limits "168h" "168h"}}
''
