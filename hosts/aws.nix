# A machine of EC2, and the image to start one from: `nix build .#aws`. hosts/aws/ec2.yaml
# launches it, or an image of NixOS itself, which then becomes this.
{
  config,
  lib,
  modulesPath,
  ...
}:
{
  imports = [
    ./cloud.nix
    (modulesPath + "/virtualisation/amazon-image.nix")
  ];

  # An image becomes what it is launched as. From then on that is the flake in /etc/nixos.
  virtualisation.amazon-init.enable = lib.mkDefault (config.services.agent-box.launch.domain == null);

  # Root comes in by Session Manager, which needs no open port.
  services.openssh.enable = lib.mkForce false;
}
