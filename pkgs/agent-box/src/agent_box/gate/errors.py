"""Reasons for which the gate does not judge a credential, or refuses a new one."""

from __future__ import annotations

from agent_box.errors import AgentBoxError, UsageError


class ThrottledError(AgentBoxError):
    """Too many failures came from this address lately."""

    code = "throttled"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"too many failed attempts; try again in {max(1, round(seconds))} s")
        self.seconds = seconds


class BusyError(AgentBoxError):
    """More passwords wait to be checked than the gate takes on."""

    code = "busy"

    def __init__(self) -> None:
        super().__init__("too many sign-ins at the same time; try again in a moment")
        self.seconds = 1.0


class WrongPasswordError(AgentBoxError):
    """The credential is not right. Deliberately says no more."""

    code = "wrong_password"


class PolicyError(UsageError):
    """The new password is not acceptable; the message says why and what would be."""

    code = "policy"


class DifferentError(PolicyError):
    """The new password was typed twice and not alike."""
