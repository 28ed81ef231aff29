# What this box has beyond its launch: packages, further users, options of docs/options.md.
# Secrets do not belong into this folder, which everybody on the machine can read.
{ pkgs, ... }:
{
  services.agent-box = {
    extraPackages = with pkgs; [
      nodejs
      uv
    ];
  };
}
