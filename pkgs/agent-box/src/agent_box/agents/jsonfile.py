"""Careful edits of configuration files that belong to the user and to a running agent.

The agents rewrite these files themselves, at any moment and without a lock that we could take. So
an edit reads, decides whether anything is missing at all, writes a temporary file beside the real
one, looks again, and only then renames; afterwards it checks that the change survived. What does
not parse is left alone. Mode and symbolic links stay as the user made them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

#: One value at a path of object keys.
Setting = tuple[tuple[str, ...], Any]
#: A value, the path of the array it belongs into, and the path of the array that vetoes it.
Member = tuple[Any, tuple[str, ...], tuple[str, ...]]

_ATTEMPTS = 6
_UNSET = (None, False, "")


class Unfit(Exception):  # noqa: N818 - a verdict on the file, not a failure of ours
    """The file is not something that we may edit."""


def edit(path: Path, change: Callable[[bytes | None], bytes | None], mode: int = 0o600) -> bool:
    """Apply `change` to the file at `path` and return whether it was written.

    `change` gets the present content (None when there is no file) and returns the wanted content,
    or None when nothing is missing; it may run several times and raises `Unfit` to leave the file
    alone. A new file gets `mode`, its missing directories 0700. Raises OSError when the file
    system refuses, and `Unfit` from `change` or for anything that is no regular file.
    """
    target = Path(os.path.realpath(path))
    written = False
    for attempt in range(_ATTEMPTS):
        before, before_mode = _read(target)
        wanted = change(before)
        if wanted is None or wanted == before:
            return written
        if attempt == 0:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = _write_beside(target, wanted, mode if before_mode is None else before_mode)
        try:
            # The narrowest window we can have against writers that take no lock.
            if _read(target)[0] != before:
                continue
            temporary.rename(target)
            written = True
        finally:
            temporary.unlink(missing_ok=True)
    return written


def merge_json(
    path: Path,
    settings: Iterable[Setting],
    defaults: Iterable[Setting] = (),
    members: Iterable[Member] = (),
) -> bool:
    """Make the JSON object at `path` hold `settings`; return whether it was written.

    `defaults` are set only where nothing (or null, false, "") stands; `members` join their arrays
    unless they stand in the vetoing one. Everything else in the document keeps its value and its
    order. A document that is no object, or that has something else where one of our paths needs
    an object or array, raises `Unfit` and stays as it is.
    """
    wanted, unset, joining = list(settings), list(defaults), list(members)

    def change(content: bytes | None) -> bytes | None:
        import json

        try:
            document = json.loads(content.decode("utf-8")) if content is not None else {}
        except (ValueError, RecursionError) as error:
            msg = f"{path}: not valid JSON"
            raise Unfit(msg) from error
        changed = [_put(document, keys, value, only_unset=False) for keys, value in wanted]
        changed += [_put(document, keys, value, only_unset=True) for keys, value in unset]
        changed += [_join(document, *member) for member in joining]
        return _dump(document) if any(changed) else None

    return edit(path, change)


def append_toml_table(path: Path, keys: tuple[str, str], body: dict[str, str]) -> bool:
    """Append the table `keys` with the strings of `body` to the TOML file at `path`, if absent.

    The rest of the file keeps every byte. Returns whether it was written; raises `Unfit` when the
    file does not parse, or would not with the table behind it.
    """
    header = "[" + ".".join((keys[0], toml_string(keys[1]))) + "]"
    table = header + "\n" + "".join(f"{key} = {toml_string(body[key])}\n" for key in body)

    def change(content: bytes | None) -> bytes | None:
        if not content:
            return table.encode()
        # The header as we write it: the common case on every start but the first, decided
        # without loading a TOML parser into the supervisor.
        if header.encode() in (line.strip() for line in content.splitlines()):
            return None
        import tomllib

        try:
            document = tomllib.loads(content.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            msg = f"{path}: not valid TOML"
            raise Unfit(msg) from error
        parent = document.get(keys[0], {})
        if isinstance(parent, dict) and keys[1] in parent:
            return None
        gap = b"\n" if content.endswith(b"\n") else b"\n\n"
        result = content + gap + table.encode()
        try:
            tomllib.loads(result.decode("utf-8"))
        except ValueError as error:
            msg = f"{path}: {keys[0]} cannot take another table"
            raise Unfit(msg) from error
        return result

    return edit(path, change)


def messages(path: Path, kinds: Sequence[str], lines: int | None) -> Iterator[dict[str, Any]]:
    """Yield the records of a conversation (JSON, one a line) whose `type` is one of `kinds`.

    `lines` is how many are read at most. Raises OSError.
    """
    import json

    with path.open("rb") as file:
        for line in itertools.islice(file, lines):
            # Long tool output is not worth parsing to find out that nobody speaks there.
            if b'"assistant"' not in line and b'"user"' not in line:
                continue
            with contextlib.suppress(ValueError, RecursionError):
                record = json.loads(line)
                if isinstance(record, dict) and record.get("type") in kinds:
                    yield record


_EMPTY = (b"", b"\0")
"""First byte of a file that a power cut has left without its content."""


def holds_something(path: Path) -> bool:
    """Return whether `path` is a file that can be read, with anything in it."""
    return _first_byte(path) not in (None, *_EMPTY)


def _first_byte(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(1)
    except OSError:
        return None


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object at `path`, or None when there is none that can be read."""
    import json

    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def toml_string(text: str) -> str:
    """Return `text` as a basic TOML string."""
    out = []
    for character in text:
        if character in '"\\':
            out.append("\\" + character)
        elif character < " " or character == "\x7f":
            out.append(f"\\u{ord(character):04x}")
        else:
            out.append(character)
    return '"' + "".join(out) + '"'


def write_private(path: Path, content: str) -> None:
    """Put `content` at `path`, readable by the user only, complete or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = _write_beside(path, content.encode("utf-8"), 0o600)
    try:
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


def _read(path: Path) -> tuple[bytes | None, int | None]:
    try:
        # Not blocking: a named pipe in the place of a file must not hang the supervisor.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None, None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            msg = f"{path}: not a regular file"
            raise Unfit(msg)
        return file.read(), stat.S_IMODE(status.st_mode)


def _write_beside(target: Path, content: bytes, mode: int) -> Path:
    name = f".{target.name[:100]}.{os.getpid()}.{os.urandom(6).hex()}.tmp"
    temporary = target.with_name(name)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _put(document: object, keys: tuple[str, ...], value: object, *, only_unset: bool) -> bool:
    """Set one value; return whether that changed the document."""
    for key in keys[:-1]:
        if not isinstance(document, dict):
            break
        document = document.setdefault(key, {})
    if not isinstance(document, dict):
        msg = "the document has another shape than expected"
        raise Unfit(msg)
    last = keys[-1]
    present = document.get(last)
    if only_unset and last in document and not any(present is unset for unset in _UNSET):
        return False
    # JSON tells true from 1, Python does not.
    if last in document and present == value and type(present) is type(value):
        return False
    document[last] = value
    return True


def _join(document: object, value: object, array: tuple[str, ...], veto: tuple[str, ...]) -> bool:
    """Append one value to an array unless it is there or vetoed; return whether it was."""
    present, vetoed = _look(document, array), _look(document, veto)
    if isinstance(vetoed, list) and value in vetoed:
        return False
    if present is None:
        return _put(document, array, [value], only_unset=False)
    if not isinstance(present, list):
        msg = "the document has another shape than expected"
        raise Unfit(msg)
    if value in present:
        return False
    present.append(value)
    return True


def _look(document: object, keys: tuple[str, ...]) -> object:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _dump(document: object) -> bytes:
    import json

    try:
        # Readable as the agents write it; escapes only where UTF-8 has no word for it.
        try:
            text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
            return text.encode("utf-8") + b"\n"
        except UnicodeEncodeError:
            return json.dumps(document, indent=2, allow_nan=False).encode() + b"\n"
    except (ValueError, RecursionError) as error:
        msg = "the document holds something that JSON cannot express"
        raise Unfit(msg) from error
