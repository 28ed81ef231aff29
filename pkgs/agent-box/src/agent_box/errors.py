"""The errors that a user can cause, each with the exit status and wire code it maps to."""

from __future__ import annotations


class AgentBoxError(Exception):
    """Something went wrong that the message explains, remedy included."""

    code = "internal"
    exit_code = 1


class InternalError(AgentBoxError):
    """The box failed, not the caller."""


class UsageError(AgentBoxError):
    """The request makes no sense as it stands."""

    code = "usage"
    exit_code = 2


class NotFoundError(AgentBoxError):
    """The named thing does not exist."""

    code = "not_found"
    exit_code = 3


class ConflictError(AgentBoxError):
    """The request is well formed but what exists stands against it."""

    code = "conflict"
    exit_code = 4


_BY_CODE: dict[str, type[AgentBoxError]] = {
    kind.code: kind for kind in (InternalError, UsageError, NotFoundError, ConflictError)
}


def from_code(code: str, message: str) -> AgentBoxError:
    """Return the error that `code` names on the control socket."""
    return _BY_CODE.get(code, InternalError)(message)
