# The plugin marketplace with local-webhook, which Claude sessions receive webhooks
# through: its files as they are upstream. `scripts/update-pins` moves pin.json.
{
  lib,
  fetchFromGitHub,
  pin ? lib.importJSON ./pin.json,
}:
fetchFromGitHub {
  name = "local-channels";
  inherit (pin)
    owner
    repo
    rev
    hash
    ;

  meta = {
    description = "Plugins that bring messages into sessions of Claude Code";
    homepage = "https://github.com/${pin.owner}/${pin.repo}";
    platforms = lib.platforms.all;
  };
}
