# Hosts that are rendered and that tests boot, each as the modules that it has beside ours.
{ lib }:
let
  fileOf = name: [ (../hosts + "/${name}.nix") ];

  # What a launch writes; the kind of machine is that which evaluates it.
  launch = removeAttrs (lib.importJSON ../hosts/aws/template/launch.json) [ "system" ];
in
lib.genAttrs [ "bare-metal" "test" "vm" ] fileOf
// {
  # A machine that a template of hosts/aws launched, without what is EC2's or Lightsail's.
  cloud = fileOf "cloud" ++ [ { services.agent-box = { inherit launch; }; } ];
}
