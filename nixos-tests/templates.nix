# What the templates make of machines: those of `nix flake init`, and those that CloudFormation
# launches.
{
  lib,
  pkgs,
  self,
}:
let
  inherit (pkgs.stdenv.hostPlatform) system;

  # The host of the flake in a folder, on this kind of machine.
  boxOf =
    folder: modules:
    ((import (folder + "/flake.nix")).outputs {
      agent-box = self;
      nixpkgs.lib = lib // {
        nixosSystem =
          args:
          lib.nixosSystem (
            args
            // {
              modules = args.modules ++ modules;
            }
            # One of a launch has its kind from there.
            // lib.optionalAttrs (args ? system) { inherit system; }
          );
      };
    }).nixosConfigurations.box;

  # What hosts/aws/ec2.yaml and hosts/aws/lightsail.yaml write.
  launches = rec {
    aws = lib.importJSON ../hosts/aws/template/launch.json;
    lightsail = aws // {
      provider = "lightsail";
      nat64 = true;
      mounts."/" = {
        uuid = "00000000-0000-4000-8000-000000000000";
        fsType = "ext4";
      };
    };
  };

  machineOf =
    launch: modules:
    lib.nixosSystem {
      inherit system;
      modules = [
        self.nixosModules.default
        self.nixosModules.${launch.provider}
        {
          services.agent-box.launch = launch // {
            inherit system;
          };
        }
      ]
      ++ modules;
    };
in
{
  boxes = {
    template = boxOf ../hosts/template [ ];
    template-aws = boxOf ../hosts/aws/template [
      { services.agent-box.launch.system = lib.mkForce system; }
    ];
    template-lightsail = machineOf launches.lightsail [ ../hosts/aws/template/configuration.nix ];
  };

  # Without what their owners add.
  launched = {
    # Session Manager comes in as a user of its own, who may do anything.
    aws = machineOf launches.aws [ { services.amazon-ssm-agent.enable = lib.mkForce false; } ];
    lightsail = machineOf launches.lightsail [ ];
  };
}
