# What scenarios find on the portable guest besides the box, for the machine of a NixOS
# test: CLIs that they can replace, interpreters where Debian has them, tools of developers.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  catalogue = import ../modules/catalogue.nix;

  # A program that is a symbolic link to `path`, which a scenario may repoint. A link to
  # nothing is passed over in a PATH.
  steerable =
    name: path:
    lib.lowPrio (
      pkgs.runCommandLocal "steerable-${name}" { } ''
        mkdir -p "$out/bin" && ln -s ${path} "$out/bin/${name}"
      ''
    );

  placeOf = name: agent: "/opt/agents/${name}/bin/${agent.program}";
in
{
  services.agent-box = {
    packages = lib.mapAttrs (name: agent: steerable agent.program (placeOf name agent)) catalogue;
    extraPackages = [
      (steerable "gh" "/opt/absent/gh/bin/gh")
      pkgs.cargo
      pkgs.gcc
      pkgs.gnumake
      pkgs.go
      pkgs.nodejs
      pkgs.rustc
      pkgs.strace
    ];
  };

  environment.systemPackages = [
    pkgs.libcap
    pkgs.nftables
    pkgs.openssl
    # A small ACME issuer.
    pkgs.pebble
  ];

  # The real CLIs, until a scenario says otherwise, and the first line of its programs.
  systemd.tmpfiles.rules =
    lib.mapAttrsToList (
      name: agent:
      "L ${placeOf name agent} - - - - ${
        lib.getBin config.services.agent-box.agentPackages.${agent.package}
      }/bin/${agent.program}"
    ) catalogue
    ++ [ "L+ /usr/bin/python3 - - - - ${pkgs.python3}/bin/python3" ];
}
