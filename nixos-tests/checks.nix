# What `nix flake check` proves.
{
  lib,
  pkgs,
  self,
  # Name -> evaluated host.
  hosts,
}:
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
    tree: name: host:
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
        python3 -m agent_box_harness.rendered --repo ${renderer} --evaluated ${tree} "$evaluatedPath"
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

  refusals = import ./assertions {
    inherit lib pkgs;
  };

  broken = import ./contract.nix {
    inherit lib pkgs;
  };

  untrue = import ./readme.nix {
    inherit lib pkgs self;
  };

  # A list of what went wrong, as a check.
  nothing =
    name: good: problems:
    if problems == [ ] then pkgs.writeText name good else throw (lib.concatStringsSep "\n" problems);

  prefixed = prefix: lib.mapAttrs' (name: lib.nameValuePair "${prefix}-${name}");

  scenarios = import ./default.nix {
    inherit lib pkgs;
    module = self.nixosModules.default;
  };

  templates = import ./templates.nix { inherit lib pkgs self; };

  # A command in a writable copy of the repository, as a check.
  inRepository =
    name: settings: command:
    pkgs.runCommand name settings ''
      cp -r ${self} repository && chmod -R u+w repository && cd repository
      export HOME=$TMPDIR
      ${command}
      touch "$out"
    '';
in
prefixed "evaluates" (lib.mapAttrs evaluates (hosts // templates.boxes))
// prefixed "rendered" (
  lib.mapAttrs (name: isRendered name name) (removeAttrs hosts [ "aws" ])
  # Machines of both templates have the units that all launched ones have, and no other.
  // lib.mapAttrs (isRendered "cloud") templates.launched
)
// prefixed "scenario" scenarios
// {
  inherit (self.packages.${pkgs.stdenv.hostPlatform.system}) agent-box harness;
  inherit options;

  assertions = nothing "assertions" "every bad configuration is refused with its remedy" refusals;
  readme = nothing "readme" "what the README tells people to type and to write is there" untrue;
  contract = nothing "contract" "options have the names and defaults that configs rely on" broken;

  formatting =
    inRepository "formatting"
      {
        nativeBuildInputs = [
          pkgs.git
          self.formatter.${pkgs.stdenv.hostPlatform.system}
        ];
      }
      ''
        git init --quiet && git add . && treefmt --ci
      '';

  # CloudFormation's own rules; what the templates run is a unit test.
  aws = inRepository "aws" {
    nativeBuildInputs = [ pkgs.python3Packages.cfn-lint ];
  } "cfn-lint hosts/aws/*.yaml";

  types =
    inRepository "types"
      {
        nativeBuildInputs = [ python ];
      }
      ''
        # nixpkgs has no types of pexpect: what comes from there may be anything.
        mypy --ignore-missing-imports --no-warn-return-any \
          pkgs/agent-box/src/agent_box harness/src/agent_box_harness
      '';

  unit =
    inRepository "unit-tests"
      {
        nativeBuildInputs = [
          pkgs.chromium
          pkgs.git
          pkgs.openssl
          pkgs.shellcheck
          pkgs.tmux
          python
        ];
        env = {
          inherit (import ./browser.nix { inherit lib pkgs; }) FONTCONFIG_FILE;
          PYTHONPATH = "pkgs/agent-box/src:harness/src";
        };
      }
      ''
        pytest -p no:cacheprovider
      '';

  image = import ./image.nix {
    inherit pkgs;
    host = hosts.vm;
  };
}
