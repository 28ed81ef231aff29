{
  description = "A machine with agent-box on it";

  inputs = {
    # The machine's own, so that an update brings what is newest of each.
    nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";
    agent-nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";
    agent-box = {
      url = "github:OWNER/agent-box";
      inputs.nixpkgs.follows = "nixpkgs";
      inputs.agent-nixpkgs.follows = "agent-nixpkgs";
    };
  };

  outputs =
    { nixpkgs, agent-box, ... }:
    {
      nixosConfigurations.box = nixpkgs.lib.nixosSystem {
        system = "x86_64-linux"; # or "aarch64-linux"
        modules = [
          ./hardware-configuration.nix
          ./configuration.nix
          agent-box.nixosModules.default
        ];
      };
    };
}
