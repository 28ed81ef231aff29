# The test script of every file of scenarios: pytest runs them on the machine that is made here.
import importlib

machine = create_machine("@start@", name="machine")
# By its name: whether the driver's type check sees the harness depends on its version.
importlib.import_module("agent_box_harness.nixos").run(
    globals(), "@scenario@", environment="@environment@", seconds=float("@seconds@")
)
