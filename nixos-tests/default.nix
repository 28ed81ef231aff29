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
  filesIn =
    folder:
    lib.filter (name: lib.hasPrefix "test_" name && lib.hasSuffix ".py" name) (
      lib.attrNames (builtins.readDir folder)
    );
  files = filesIn folder ++ map (name: "attack/${name}") (filesIn (folder + "/attack"));

  # `attack/test_a_b.py` is called attack-a-b.
  nameOf =
    file:
    lib.replaceStrings [ "attack/test_" "_" ] [ "attack-" "-" ] (
      lib.removePrefix "test_" (lib.removeSuffix ".py" file)
    );

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

  # Which host a file is about: that of its `pytestmark`, or the one of most scenarios.
  hostOf =
    file:
    let
      marks = builtins.split "mark[.]host\\(\"([a-z-]+)\"\\)" (builtins.readFile (folder + "/${file}"));
      named = lib.unique (lib.concatLists (lib.filter lib.isList marks));
    in
    if lib.length named > 1 then
      throw "${file} is about the hosts ${toString named}: one machine boots for all of a file"
    else
      lib.head (named ++ [ "test" ]);

  inherit ((import ./needs.nix { inherit lib pkgs; })) memorySizes settingsOf;

  # Machines differ in their host and their memory only. Each is evaluated once, whatever
  # the number of tests: a whole NixOS takes half a gigabyte.
  machines = lib.mapAttrs (host: modules: lib.mapAttrs (machineOf host modules) memorySizes) (
    import ./hosts.nix { inherit lib; }
  );

  machineOf =
    host: modules: size: memorySize:
    (pkgs.testers.runNixOSTest {
      name = "agent-box-machine-${host}-${size}";
      # A launched machine may say itself what kind it is.
      node.pkgsReadOnly = false;
      nodes.machine = {
        imports = [
          module
          ./guest.nix
        ]
        ++ modules;
        nixpkgs.pkgs = pkgs;
        virtualisation = {
          inherit memorySize;
          cores = 2;
          # Nobody else is on its network.
          vlans = [ ];
        };
      };
      testScript = "";
    }).nodes.machine.system.build.vm;

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
            (lib.getExe machines.${hostOf file}.${settings.size})
            "${folder}/${file}"
            "${pkgs.writeText "environment.json" (builtins.toJSON settings.environment)}"
            (toString globalTimeout)
          ]
          (builtins.readFile ./scenario.py);
      passthru = { inherit settings; };
    };
in
lib.listToAttrs (map (file: lib.nameValuePair (nameOf file) (testOf file)) files)
