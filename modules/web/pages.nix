# What the edge serves itself: the pages of the box with their scripts, and the page of
# terminals, which is ttyd's. They are made when the system is built and belong to root, so
# that no process of a user decides what runs in a browser on the origin of the box.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.agent-box;
  inherit (cfg) web;
in
{
  options.services.agent-box.web.pages = lib.mkOption {
    type = lib.types.package;
    internal = true;
    readOnly = true;
    description = "Directory of the files that the edge serves.";
  };

  config.services.agent-box.web.pages = pkgs.runCommand "agent-box-pages" { } ''
    ${cfg.runtime}/bin/agent-box-pages --ttyd ${lib.getExe pkgs.ttyd} --host ${lib.escapeShellArg web.domain} \
      "$out" ${lib.escapeShellArgs web.users}
  '';
}
