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

      eachSystem =
        make:
        lib.genAttrs [ "x86_64-linux" "aarch64-linux" ] (system: make nixpkgs.legacyPackages.${system});

      hostNames = [
        "bare-metal"
        "test"
        "vm"
      ];

      hostOn =
        system: name:
        lib.nixosSystem {
          inherit system;
          modules = [
            self.nixosModules.default
            ./hosts/${name}.nix
          ];
        };

      checksFor = pkgs: import ./nixos-tests/checks.nix { inherit lib pkgs self; };
    in
    {
      nixosModules = {
        agent-box =
          { lib, pkgs, ... }:
          {
            imports = [ ./modules ];
            services.agent-box.agentPackages = lib.mkDefault (
              import agent-nixpkgs {
                inherit (pkgs.stdenv.hostPlatform) system;
                # The only agent that is not free software.
                config.allowUnfreePredicate = package: lib.getName package == "claude-code";
              }
            );
          };
        default = self.nixosModules.agent-box;
      };

      nixosConfigurations = lib.genAttrs hostNames (hostOn "x86_64-linux");

      packages = eachSystem (pkgs: {
        agent-box = pkgs.callPackage ./pkgs/agent-box/package.nix { };
        harness = pkgs.callPackage ./harness/package.nix { };
        vm = (hostOn pkgs.stdenv.hostPlatform.system "vm").config.system.build.images.qemu;
        default = self.packages.${pkgs.stdenv.hostPlatform.system}.vm;
      });

      checks = eachSystem (
        pkgs:
        checksFor pkgs {
          hosts = lib.genAttrs hostNames (hostOn pkgs.stdenv.hostPlatform.system);
        }
      );

      apps = eachSystem (
        pkgs:
        let
          inherit (pkgs.stdenv.hostPlatform) system;
          # In a checkout, since that is where results go.
          script = name: "${pkgs.writeShellScript name ''exec "$PWD/scripts/${name}" "$@"''}";
          app = description: program: {
            type = "app";
            inherit program;
            meta = { inherit description; };
          };
        in
        {
          try = app "Boot a throwaway box and attach to its first session" (
            lib.getExe (hostOn system "vm").config.system.build.vm
          );
          test = app "Run every test, or those that are named" (script "test");
          render = app "Remake nixos-tests/rendered from the module" (script "render");
        }
      );

      devShells = eachSystem (pkgs: {
        default = pkgs.callPackage ./nixos-tests/shell.nix { };
      });

      formatter = eachSystem (pkgs: pkgs.nixfmt-tree);
    };
}
