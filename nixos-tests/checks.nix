# What `nix flake check` proves.
{
  lib,
  pkgs,
  self,
}:
{ hosts }:
let
  python = pkgs.callPackage ./python.nix { };

  # What the digest covers, and what computes it.
  renderer = lib.fileset.toSource {
    root = ../.;
    fileset = lib.fileset.unions [
      ../docs/options.md
      ../harness/src
      ../hosts
      ../modules
      ../nixos-tests
      ../pkgs/agent-box/package.nix
    ];
  };

  # A host evaluates to the last unit, without building it.
  evaluates =
    name: host:
    pkgs.writeText "evaluates-${name}" (
      builtins.unsafeDiscardStringContext host.config.system.build.toplevel.drvPath
    );

  # What is committed is what the module yields, byte for byte.
  isRendered =
    name: host:
    pkgs.runCommand "rendered-${name}"
      {
        nativeBuildInputs = [ pkgs.python3 ];
        evaluated = builtins.unsafeDiscardStringContext (
          builtins.toJSON (
            import ./rendered.nix {
              inherit lib;
              inherit (host) config;
            }
          )
        );
        passAsFile = [ "evaluated" ];
        env.PYTHONPATH = "${renderer}/harness/src";
      }
      ''
        python3 -m agent_box_harness.rendered --repo ${renderer} --evaluated ${name} "$evaluatedPath"
        touch "$out"
      '';

  # And so is the reference of the options.
  options =
    pkgs.runCommand "options"
      {
        nativeBuildInputs = [ pkgs.python3 ];
        evaluated = builtins.unsafeDiscardStringContext (
          builtins.toJSON (import ./options.nix { inherit lib pkgs; })
        );
        passAsFile = [ "evaluated" ];
        env.PYTHONPATH = "${renderer}/harness/src";
      }
      ''
        python3 -m agent_box_harness.rendered --repo ${renderer} --options "$evaluatedPath"
        touch "$out"
      '';

  refusals = import ./assertions.nix {
    inherit lib pkgs;
  };

  prefixed = prefix: lib.mapAttrs' (name: lib.nameValuePair "${prefix}-${name}");

  scenarios = import ./default.nix {
    inherit lib pkgs;
    module = self.nixosModules.default;
  };
in
prefixed "evaluates" (lib.mapAttrs evaluates hosts)
// prefixed "rendered" (lib.mapAttrs isRendered hosts)
// prefixed "scenario" scenarios
// {
  inherit (self.packages.${pkgs.stdenv.hostPlatform.system}) agent-box harness;
  inherit options;

  assertions =
    if refusals == [ ] then
      pkgs.writeText "assertions" "every bad configuration is refused with its remedy"
    else
      throw (lib.concatStringsSep "\n" refusals);

  unit =
    pkgs.runCommand "unit-tests"
      {
        nativeBuildInputs = [
          pkgs.shellcheck
          pkgs.tmux
          python
        ];
        env.PYTHONPATH = "pkgs/agent-box/src:harness/src";
      }
      ''
        cp -r ${self} repository && chmod -R u+w repository && cd repository
        HOME=$TMPDIR pytest -p no:cacheprovider
        touch "$out"
      '';
}
