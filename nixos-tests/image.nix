# The image of `nix build .#vm`, booted from a disk of its own by its own boot loader.
# All that is added is the shell of the test driver.
{ pkgs, host }:
let
  instrumented = host.extendModules {
    modules = [
      (
        { modulesPath, ... }:
        {
          imports = [ (modulesPath + "/testing/test-instrumentation.nix") ];
        }
      )
    ];
  };
  image = instrumented.config.system.build.images.qemu;

  # The name tells the driver that of the machine.
  start = pkgs.writeShellScript "run-image-vm" ''
    set -e
    if [[ ! -e disk.qcow2 ]]; then
      ${pkgs.qemu_test}/bin/qemu-img create -q -f qcow2 -F qcow2 \
        -b ${image}/${image.passthru.filePath} disk.qcow2 16G
    fi
    # The CPU of NixOS tests: agents need more than the least that QEMU offers.
    exec ${pkgs.qemu_test}/bin/qemu-system-x86_64 -machine accel=kvm:tcg -cpu max -m 4096 -smp 2 \
      -drive file=disk.qcow2,if=virtio \
      -netdev user,id=net -device virtio-net-pci,netdev=net \
      "$@" $QEMU_OPTS
  '';
in
pkgs.testers.runNixOSTest {
  name = "agent-box-image";
  nodes = { };
  testScript = pkgs.lib.replaceStrings [ "@start@" ] [ "${start}" ] (builtins.readFile ./image.py);
}
