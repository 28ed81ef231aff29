# What a unit needs to run in the network of a user: nothing, as long as users share
# that of the machine.
{ lib, ... }:
{
  options.services.agent-box.inUserNetwork = lib.mkOption {
    type = lib.types.functionTo lib.types.raw;
    internal = true;
    readOnly = true;
    default = _: { };
    description = "Settings of a unit that runs in a user's network, as a function of the user's name.";
  };
}
