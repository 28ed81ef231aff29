# One NixOS test per scenario of the harness: the same files that run on the
# portable guest, on a machine that the driver of NixOS boots.
{
  lib,
  pkgs,
  module,
}:
let
  folder = ../harness/scenarios;
  files = lib.filter (lib.hasPrefix "test_") (
    lib.attrNames (lib.optionalAttrs (lib.pathExists folder) (builtins.readDir folder))
  );

  nameOf =
    file: lib.replaceStrings [ "_" ] [ "-" ] (lib.removePrefix "test_" (lib.removeSuffix ".py" file));

  testOf =
    file:
    pkgs.testers.runNixOSTest {
      name = "agent-box-${nameOf file}";
      nodes.machine = {
        imports = [
          module
          ../hosts/test.nix
        ];
        virtualisation = {
          cores = 2;
          memorySize = 2048;
        };
      };
      extraPythonPackages = python: [
        (python.callPackage ../harness/package.nix { python3Packages = python; })
      ];
      # The scenario has its own type check; the driver's does not see the harness.
      skipTypeCheck = true;
      testScript = ''
        from agent_box_harness.nixos import run
        run(globals(), "${folder}/${file}")
      '';
    };
in
lib.listToAttrs (map (file: lib.nameValuePair (nameOf file) (testOf file)) files)
