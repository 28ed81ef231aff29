# The image of `nix build .#vm`, booted from a disk of its own by its own boot loader.
# All that is added is the shell of the test driver.
{ pkgs, host }:
let
  inherit (pkgs) lib OVMF;
  inherit (pkgs.stdenv) hostPlatform;

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
  images = instrumented.config.system.build.images;

  # Machines of the other kind have no BIOS, nor a screen unless asked for.
  image = if hostPlatform.isx86_64 then images.qemu else images.qemu-efi;
  machine = lib.optionalString (!hostPlatform.isx86_64) "virt,gic-version=max,";
  firmware = lib.optionalString (!hostPlatform.isx86_64) ''
    -drive if=pflash,format=raw,unit=0,readonly=on,file=${OVMF.firmware} \
    -drive if=pflash,format=raw,unit=1,file=variables.fd \
    -device virtio-gpu-pci \
  '';

  # The name tells the driver that of the machine.
  start = pkgs.writeShellScript "run-image-vm" ''
    set -e
    if [[ ! -e disk.qcow2 ]]; then
      ${pkgs.qemu_test}/bin/qemu-img create -q -f qcow2 -F qcow2 \
        -b ${image}/${image.passthru.filePath} disk.qcow2 16G
      ${lib.optionalString (!hostPlatform.isx86_64) "install -m 600 ${OVMF.variables} variables.fd"}
    fi
    # The CPU of NixOS tests: agents need more than the least that QEMU offers.
    exec ${pkgs.qemu_test}/bin/qemu-system-${hostPlatform.qemuArch} \
      -machine ${machine}accel=kvm:tcg -cpu max -m 4096 -smp 2 \
      ${firmware}-drive file=disk.qcow2,if=virtio \
      -netdev user,id=net -device virtio-net-pci,netdev=net \
      "$@" $QEMU_OPTS
  '';
in
pkgs.testers.runNixOSTest {
  name = "agent-box-image";
  nodes = { };
  testScript = lib.replaceStrings [ "@start@" ] [ "${start}" ] (builtins.readFile ./image.py);
}
