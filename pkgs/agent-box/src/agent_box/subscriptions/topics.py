"""Topics: `source:key`, or `source:prefix/*` for every key that starts with the prefix.

There is no way to say "everything": most sessions never subscribe, and one that gets all events of
a busy organisation is of no use. The rules are those of the local-webhook plugin.
"""

from __future__ import annotations

import re

from agent_box.errors import UsageError

_VALID = re.compile(r"[A-Za-z0-9._-]+:[!-~]+")
_PLAIN = re.compile(r"[A-Za-z0-9._-]+:[A-Za-z0-9#/._-]+(?:/\*)?")
_SHORT = re.compile(r"[A-Za-z0-9._-]+/(?:[A-Za-z0-9._-]+|\*)")


def problem(topic: str) -> str | None:
    """Return why `topic` never matches anything, or None when it can."""
    if topic == "*" or topic.endswith(":*"):
        return (
            "a topic for everything was removed in 0.13.0 and matches nothing;"
            " name a key, or a prefix that ends with /*"
        )
    if not _VALID.fullmatch(topic):
        return "not a valid topic pattern; write source:key or source:prefix/*"
    return None


def plain(topic: str) -> bool:
    """Tell whether `topic` can stand in a sentence of ours: keys are texts of senders.

    What names of repositories, issues and the like are made of cannot form a sentence.
    """
    return _PLAIN.fullmatch(topic) is not None


def matches(topic: str, source: str, key: str) -> bool:
    """Tell whether an event of `source` with the routing key `key` belongs to `topic`.

    Letter case does not matter. An event without a key belongs to none.
    """
    if not key or problem(topic):
        return False
    wanted_source, _, wanted = topic.lower().partition(":")
    if wanted_source != source.lower():
        return False
    key = key.lower()
    return key.startswith(wanted[:-1]) if wanted.endswith("/*") else key == wanted


def normal(text: str) -> str:
    """Return the topic that a person means; `owner/name` is short for one of GitHub.

    Raises UsageError for what is none.
    """
    topic = text.strip()
    if _SHORT.fullmatch(topic):
        topic = f"github:{topic}"
    reason = problem(topic)
    if reason:
        raise UsageError(f"'{topic[:200]}': {reason}")
    return topic


def same(one: str, other: str) -> bool:
    """Tell whether two topics are one and the same subscription."""
    return one.lower() == other.lower()
