{
  description = "A machine with agent-box on it";

  inputs = {
    agent-box.url = "github:OWNER/agent-box";
    nixpkgs.follows = "agent-box/nixpkgs";
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
