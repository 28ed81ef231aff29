"""Rules about the content of an event: `include` and `exclude` of a subscription.

`{"any": […]}`, `{"all": […]}`, or a leaf `{"path": "a.b", OPERATOR: [values]}` with exactly one of
`in`, `notIn`, `contains`, `notContains`. No regular expressions: the text comes from strangers. The
meaning is the plugin's, including that a malformed rule matches nothing.
"""

from __future__ import annotations

import logging
from typing import Any

from agent_box.errors import UsageError

log = logging.getLogger(__name__)

OPERATORS = ("in", "notIn", "contains", "notContains")
MAX_DEPTH = 50

_MISSING = None


class MalformedError(Exception):
    """The rule has no meaning."""


def look(payload: Any, path: str) -> Any:
    """Return what stands at a dotted path; None when there is nothing. Lists have no names."""
    for part in path.split("."):
        if not isinstance(payload, dict) or part not in payload:
            return _MISSING
        payload = payload[part]
    return payload


def holds(rule: Any, payload: Any, depth: int = 0) -> bool:
    """Tell whether the payload satisfies the rule; a malformed part of it never does."""
    try:
        return _holds(rule, payload, depth)
    except MalformedError:
        log.warning("malformed predicate node matches nothing: %.200r", rule)
        return False


def _holds(rule: Any, payload: Any, depth: int) -> bool:
    if depth > MAX_DEPTH or not isinstance(rule, dict):
        raise MalformedError
    for word, decide in (("any", any), ("all", all)):
        if word in rule:
            parts = rule[word]
            if not isinstance(parts, list):
                raise MalformedError
            return decide(holds(part, payload, depth + 1) for part in parts)
    return _leaf(rule, payload)


def _leaf(rule: dict[str, Any], payload: Any) -> bool:
    path = rule.get("path")
    used = [word for word in OPERATORS if word in rule]
    if not isinstance(path, str) or not path or len(used) != 1:
        raise MalformedError
    operator, values = used[0], rule[used[0]]
    if not isinstance(values, list):
        raise MalformedError
    found = look(payload, path)
    if operator in ("in", "notIn"):
        return any(_equal(found, value) for value in values) == (operator == "in")
    return _contains(found, values) == (operator == "contains")


def _equal(one: Any, other: Any) -> bool:
    """Compare scalars as JSON does: true is not 1. Objects and lists equal nothing."""
    if isinstance(one, (dict, list)) or isinstance(other, (dict, list)):
        return False
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)


def _contains(found: Any, values: list[Any]) -> bool:
    if not isinstance(found, str):
        return False
    text = found.lower()
    return any(isinstance(value, str) and value and value.lower() in text for value in values)


def check(rule: Any, where: str, depth: int = 0) -> None:
    """Raise UsageError that names the place if `rule` has no meaning."""
    if depth > MAX_DEPTH:
        raise UsageError(f"{where}: nested more than {MAX_DEPTH} deep")
    if not isinstance(rule, dict):
        raise UsageError(f"{where}: not an object; write any, all, or path with an operator")
    for word in ("any", "all"):
        if word not in rule:
            continue
        if not isinstance(rule[word], list):
            raise UsageError(f"{where}.{word}: not a list")
        for index, part in enumerate(rule[word]):
            check(part, f"{where}.{word}[{index}]", depth + 1)
        return
    path = rule.get("path")
    if not isinstance(path, str) or not path:
        raise UsageError(f"{where}: has neither any, all nor a path")
    used = [word for word in OPERATORS if word in rule]
    if len(used) != 1:
        raise UsageError(f"{where}: takes exactly one of {', '.join(OPERATORS)}")
    values = rule[used[0]]
    if not isinstance(values, list):
        raise UsageError(f"{where}.{used[0]}: not a list")
    for value in values:
        if used[0] in ("contains", "notContains"):
            if not isinstance(value, str) or not value:
                raise UsageError(f"{where}.{used[0]}: takes texts that are not empty")
        elif isinstance(value, (dict, list)):
            raise UsageError(f"{where}.{used[0]}: takes texts, numbers, true, false and null")
