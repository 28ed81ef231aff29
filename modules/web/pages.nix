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
  hardening = import ../hardening { inherit lib; };
in
{
  options.services.agent-box.web.pages = lib.mkOption {
    type = lib.types.package;
    internal = true;
    readOnly = true;
    description = "Directory of the files that the edge serves.";
  };

  config = {
    services.agent-box.web.pages = pkgs.runCommand "agent-box-pages" { } ''
      ${cfg.runtime}/bin/agent-box-pages --ttyd ${lib.getExe pkgs.ttyd} --host ${lib.escapeShellArg web.domain} \
        "$out" ${lib.escapeShellArgs web.users}
    '';

    # Pages that stay open over an update go on with the scripts that they began with.
    systemd.services.agent-box-assets = lib.mkIf (cfg.enable && web.enable) {
      description = "Scripts of this version for pages that stay open over the next update";
      wantedBy = [ "multi-user.target" ];
      serviceConfig = hardening.keepAssets // {
        Type = "oneshot";
        RemainAfterExit = true;
        ExecStart = "${cfg.runtime}/bin/agent-box-keep-assets ${web.pages}";
        StateDirectory = "agent-box-assets";
        StateDirectoryMode = "0755";
        SyslogIdentifier = "agent-box-assets";
      };
    };
  };
}
