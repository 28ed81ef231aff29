{
  description = "A box at AWS: launch.json says which, configuration.nix is yours";

  inputs = {
    # The box's own, so that an update brings what is newest of each.
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
    let
      launch = nixpkgs.lib.importJSON ./launch.json;
    in
    {
      nixosConfigurations.box = nixpkgs.lib.nixosSystem {
        modules = [
          agent-box.nixosModules.default
          agent-box.nixosModules.${launch.provider}
          { services.agent-box = { inherit launch; }; }
          ./configuration.nix
        ];
      };
    };
}
