# One NixOS test per file of scenarios: the same files that run on the portable
# guest, on a machine that the driver of NixOS boots, and gives an empty disk and
# boots again for each scenario that needs a box of its own.
{
  lib,
  pkgs,
  module,
}:
let
  folder = ../harness/scenarios;
  files = lib.filter (name: lib.hasPrefix "test_" name && lib.hasSuffix ".py" name) (
    lib.attrNames (builtins.readDir folder)
  );

  nameOf =
    file: lib.replaceStrings [ "_" ] [ "-" ] (lib.removePrefix "test_" (lib.removeSuffix ".py" file));

  # What a scenario declares: the words of every `mark.needs("…", "…")` in its file,
  # and `browser` where it asks the harness for one.
  needsOf =
    file:
    let
      source = builtins.readFile (folder + "/${file}");
      calls = lib.tail (lib.splitString "mark.needs(" source);
      wordsOf =
        call: lib.filter lib.isList (builtins.split "\"([a-z-]+)\"" (lib.head (lib.splitString ")" call)));
    in
    lib.unique (
      map lib.head (lib.concatMap wordsOf calls)
      ++ lib.optional (lib.hasInfix "browser.needed()" source) "browser"
    );

  inherit ((import ./needs.nix { inherit lib pkgs; })) memorySizes settingsOf;

  # Machines differ in their memory only. Each is evaluated once, whatever the number
  # of tests: a whole NixOS takes half a gigabyte.
  machines = lib.mapAttrs (
    size: memorySize:
    (pkgs.testers.runNixOSTest {
      name = "agent-box-machine-${size}";
      nodes.machine = {
        imports = [
          module
          ../hosts/test.nix
          ./guest.nix
        ];
        virtualisation = {
          inherit memorySize;
          cores = 2;
          # Nobody else is on its network.
          vlans = [ ];
        };
      };
      testScript = "";
    }).nodes.machine.system.build.vm
  ) memorySizes;

  testOf =
    file:
    let
      settings = settingsOf file (needsOf file);
      # Seconds: a boot with KVM takes about twenty.
      globalTimeout = 5400;
    in
    pkgs.testers.runNixOSTest {
      name = "agent-box-${nameOf file}";
      inherit globalTimeout;
      # The script starts the machine, which is none of this test alone.
      nodes = { };
      extraPythonPackages =
        python:
        [ (python.callPackage ../harness/package.nix { python3Packages = python; }) ]
        ++ settings.pythonPackages python;
      testScript =
        lib.replaceStrings
          [
            "@start@"
            "@scenario@"
            "@environment@"
            "@seconds@"
          ]
          [
            (lib.getExe machines.${settings.size})
            "${folder}/${file}"
            "${pkgs.writeText "environment.json" (builtins.toJSON settings.environment)}"
            (toString globalTimeout)
          ]
          (builtins.readFile ./scenario.py);
      passthru = { inherit settings; };
    };
in
lib.listToAttrs (map (file: lib.nameValuePair (nameOf file) (testOf file)) files)
