"""What can go wrong while driving a machine, split by whose fault it is."""

from __future__ import annotations


class HarnessError(Exception):
    """Base of everything that the harness raises on purpose."""


class MachineError(HarnessError):
    """The machine or its plumbing broke: no shell, no boot, QEMU died, a command hung."""


class BuildError(HarnessError):
    """A guest image cannot be built; the message names the remedy."""


class RequestFailedError(HarnessError, AssertionError):
    """The machine works, but did not do what the scenario asked it to show."""


class WaitTimeoutError(RequestFailedError):
    """A condition did not come true in time; the message carries what was seen last."""


class UnexpectedOutputError(RequestFailedError):
    """A program said something else than it should; the message carries all of it."""
