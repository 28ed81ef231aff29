{
  description = "Multi-user hosts for coding agents: supervised, sandboxed, resumable sessions";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";
    # The agent CLIs move faster than a stable release of NixOS.
    agent-nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";
  };

  outputs =
    {
      self,
      nixpkgs,
      agent-nixpkgs,
    }:
    let
      inherit (nixpkgs) lib;

      systems = [
        "x86_64-linux"
        "aarch64-linux"
      ];

      eachSystem = make: lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});

      hostNames = [
        "aws"
        "bare-metal"
        "test"
        "vm"
      ];

      # Every host and every instance of nixpkgs once, however many outputs use it: what
      # evaluates for one output stays in memory until the last.
      hosts = lib.genAttrs systems (
        system:
        lib.genAttrs hostNames (
          name:
          lib.nixosSystem {
            inherit system;
            modules = [
              self.nixosModules.default
              ./hosts/${name}.nix
            ];
          }
        )
      );

      agentPackages = lib.genAttrs systems (
        system:
        let
          instance =
            allowAliases:
            import agent-nixpkgs {
              inherit system;
              config = {
                inherit allowAliases;
                # The only agent that is not free software.
                allowUnfreePredicate = package: lib.getName package == "claude-code";
              };
            };

          # Old names of packages cost every evaluation of every box, and are needed only
          # from the day on which an agent has a new one.
          packages = instance false;
          names = lib.catAttrs "package" (lib.attrValues (import ./modules/catalogue.nix));
          renamed = lib.filter (name: !packages ? ${name}) names;
        in
        packages // lib.getAttrs renamed (instance true)
      );
    in
    {
      nixosModules = {
        agent-box =
          { lib, pkgs, ... }:
          {
            imports = [ ./modules ];
            services.agent-box.agentPackages = lib.mkDefault agentPackages.${pkgs.stdenv.hostPlatform.system};
          };
        default = self.nixosModules.agent-box;

        # For machines that a template of hosts/aws launched.
        aws = ./hosts/aws.nix;
        lightsail = ./hosts/lightsail.nix;
      };

      nixosConfigurations = hosts.x86_64-linux // {
        # `nixos-rebuild` looks nowhere else.
        vm-aarch64 = hosts.aarch64-linux.vm;
      };

      overlays.default = final: _: {
        agent-box = final.callPackage ./pkgs/agent-box/package.nix { };
        agent-box-harness = final.callPackage ./harness/package.nix { };
        local-channels = final.callPackage ./pkgs/local-channels/package.nix { };
      };

      packages = eachSystem (
        pkgs:
        let
          inherit (pkgs.stdenv.hostPlatform) system;
          imagesOf = host: hosts.${system}.${host}.config.system.build.images;
        in
        {
          # To register with EC2, whose machines of the other kind have UEFI, too.
          aws = (imagesOf "aws").amazon;
          agent-box = pkgs.callPackage ./pkgs/agent-box/package.nix { };
          harness = pkgs.callPackage ./harness/package.nix { };
          local-channels = pkgs.callPackage ./pkgs/local-channels/package.nix { };
          # Machines of the other kind have no BIOS.
          vm = if pkgs.stdenv.hostPlatform.isx86_64 then (imagesOf "vm").qemu else (imagesOf "vm").qemu-efi;
          default = self.packages.${system}.vm;
        }
      );

      checks = eachSystem (
        pkgs:
        import ./nixos-tests/checks.nix {
          inherit lib pkgs self;
          hosts = hosts.${pkgs.stdenv.hostPlatform.system};
        }
      );

      apps = eachSystem (
        pkgs:
        import ./nixos-tests/apps.nix {
          inherit lib nixpkgs pkgs;
          inherit (hosts.${pkgs.stdenv.hostPlatform.system}) vm;
        }
      );

      devShells = eachSystem (pkgs: {
        default = pkgs.callPackage ./nixos-tests/shell.nix { };
      });

      formatter = eachSystem (pkgs: pkgs.callPackage ./nixos-tests/formatter.nix { });

      templates.aws = {
        path = ./hosts/aws/template;
        description = "What a template of hosts/aws makes of a machine";
      };

      templates.default = {
        path = ./hosts/template;
        description = "A machine of your own with agent-box on it";
        welcomeText = ''
          1. Write your machine's hardware-configuration.nix beside flake.nix:
             `nixos-generate-config --show-hardware-config >hardware-configuration.nix`
          2. Say in configuration.nix who works on the box.
          3. `sudo nixos-rebuild switch --flake .#box`; where this is a git repository,
             `git add .` before that.
        '';
      };
    };
}
