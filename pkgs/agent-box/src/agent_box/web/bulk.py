"""Many secrets at once, pasted from wherever they were kept.

Understands what `.env` files and shells write: comments, `export KEY=value`, quotes, and values
in quotes that go on over several lines. A line that makes no sense is an error that names it, so
that nothing is lost silently.
"""

from __future__ import annotations

from agent_box import envfile
from agent_box.errors import UsageError


def parse(text: str) -> dict[str, str]:
    """Return the keys and values in `text`; UsageError names the line that makes no sense."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    values: dict[str, str] = {}
    index = 0
    while index < len(lines):
        number, line = index + 1, lines[index].strip()
        index += 1
        if not line or line.startswith("#"):
            continue
        key, separator, raw = line.partition("=")
        key = key.removeprefix("export ").strip()
        if not separator or not envfile.is_key(key):
            raise UsageError(
                f"line {number} is not KEY=value; put a value of several lines in quotes"
            )
        raw = raw.strip()
        if raw[:1] in ("'", '"') and not _closed(raw):
            raw, index = _continued(raw, lines, index, number, key)
        values[key] = _value(raw)
    return values


def _closed(raw: str) -> bool:
    return len(raw) > 1 and raw.endswith(raw[0])


def _continued(raw: str, lines: list[str], index: int, number: int, key: str) -> tuple[str, int]:
    """Return the value that begins with `raw` and goes on at `index`, and where it ends."""
    # A quote that only starts a word ("it's") closes nowhere: then the line stands for itself.
    parts = [raw]
    for end in range(index, len(lines)):
        line = lines[end].rstrip()
        parts.append(line if line.endswith(raw[0]) else lines[end])
        if line.endswith(raw[0]):
            return "\n".join(parts), end + 1
    raise UsageError(f"line {number}: the quote that {key} starts with is never closed")


def _value(raw: str) -> str:
    if "\n" in raw:
        return raw[1:-1]
    # What our own file and .env files share, `$'…'` included.
    if raw[:1] not in ("'", '"', "$") and " #" in raw:
        raw = raw.partition(" #")[0].rstrip()
    return envfile.parse_value(raw)
