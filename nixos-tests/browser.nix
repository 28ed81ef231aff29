# The environment of a program that drives a browser which nobody looks at.
{ lib, pkgs }:
{
  PATH = lib.makeBinPath [ pkgs.chromium ];
  FONTCONFIG_FILE = "${pkgs.makeFontsConf { fontDirectories = [ pkgs.dejavu_fonts ]; }}";
}
