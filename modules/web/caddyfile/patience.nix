# How long the edge waits for a body to come and for an answer to be taken. Caddy snippets.
{ lib, pkgs }:
let
  # Caddy counts from here, whatever came in between. Later versions have no such setting:
  # there, whoever is silent for a minute is given up.
  settable = lib.versionOlder pkgs.caddy.version "2.12";

  limits =
    seconds:
    lib.optionalString settable ''
      	request_body {
      		read_timeout ${seconds}
      		write_timeout ${seconds}
      	}
    '';
in
''
  # Strangers have next to nothing to send and to fetch.
  (patience-with-strangers) {
  ${limits "20s"}}

  # Uploads and downloads take their time, and streams of events have no end.
  (patience-with-users) {
  ${limits "168h"}}
''
