# The test script of every scenario: pytest runs it on the machine that the driver booted.
from agent_box_harness.nixos import run  # type: ignore  # the driver checks without the harness

run(globals(), "@scenario@", environment="@environment@")
