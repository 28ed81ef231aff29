# Files between the box and the browser: ~/downloads is offered there, ~/uploads
# comes from there. The workspace service serves both as the user, so that no
# other account needs to read a home.
{ config, lib, ... }:
let
  cfg = config.services.agent-box;
  inherit (cfg) web;
in
{
  options.services.agent-box.tmpfiles = lib.mkOption {
    type = lib.types.listOf lib.types.str;
    default = [ ];
    internal = true;
    description = "Lines for systemd-tmpfiles.";
  };

  config = lib.mkIf cfg.enable {
    systemd.tmpfiles.rules = cfg.tmpfiles;

    # The colons leave alone what is there already, whatever its mode.
    services.agent-box.tmpfiles = lib.mkIf web.enable (
      lib.concatMap (name: [
        "d /home/${name}/downloads :0755 :${name} :${name} -"
        "d /home/${name}/uploads :0700 :${name} :${name} -"
      ]) web.users
    );
  };
}
