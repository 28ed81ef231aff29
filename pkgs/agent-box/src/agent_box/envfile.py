"""The user's environment file `~/.config/agent-box/env`: reading and line-preserving edits.

One `KEY=value` a line. Empty lines, lines that start with `#`, lines without `=` and lines whose
key is not `[A-Za-z_][A-Za-z0-9_]*` mean nothing and stay where they are. Nothing is expanded or
executed. The last of several lines for one key counts. A value is one of

    plain text        taken as it stands, blanks included
    "text"  'text'    the text between the quotes as it stands; no escapes in there
    $'text'           with the escapes \\n \\r \\t \\\\ \\' \\xHH: for what does not fit on a line

Values are written in the plainest form that reads back the same. What is not one of the quoted
forms from start to end of the line is plain text, so any older file keeps its meaning.

Reading happens at every start of a session, hence no import that `os` has not made already.
"""

from __future__ import annotations

import os
import stat

from agent_box.errors import InternalError, UsageError

TYPE_CHECKING = False  # spares each start the import of typing
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

_PLACE = (  # who and where the session is, and its terminal: the box sets these
    *("HOME", "LOGNAME", "MAIL", "OLDPWD", "PATH", "PWD", "SHELL", "TERM", "TERMINFO"),
    *("TMUX", "TMUX_PANE", "TMUX_TMPDIR", "USER", "XDG_RUNTIME_DIR"),
)
_SHELLS = (  # shells run code or read words differently at start
    *("BASHOPTS", "BASH_ENV", "CDPATH", "ENV", "GLOBIGNORE", "IFS", "PROMPT_COMMAND", "PS4"),
    *("SHELLOPTS", "ZDOTDIR"),
)
_LOADERS = (  # interpreters and libc load other code; the agents themselves are such programs
    *("GCONV_PATH", "GLIBC_TUNABLES", "NODE_OPTIONS", "NODE_PATH", "PERL5DB", "PERL5LIB"),
    *("PERL5OPT", "PYTHONHOME", "PYTHONINSPECT", "PYTHONPATH", "PYTHONPLATLIBDIR"),
    *("PYTHONSTARTUP", "PYTHONUSERBASE", "RUBYLIB", "RUBYOPT"),
)
_SYSTEMD = (  # handed by systemd to the process it started, never to ours
    *("DBUS_SESSION_BUS_ADDRESS", "INVOCATION_ID", "JOURNAL_STREAM", "LISTEN_FDNAMES"),
    *("LISTEN_FDS", "LISTEN_PID", "MAINPID", "MANAGERPID", "NOTIFY_SOCKET", "WATCHDOG_PID"),
    "WATCHDOG_USEC",
)

RESERVED = frozenset((*_PLACE, *_SHELLS, *_LOADERS, *_SYSTEMD))
"""Keys that can break every session at once; writing one takes `force`."""

RESERVED_PREFIXES = ("LD_", "AGENT_BOX_")
"""Keys with these prefixes are reserved too, but for `ALLOWED`."""

ALLOWED = frozenset({"AGENT_BOX_HOOK_SESSION_ARGS", "AGENT_BOX_HOOK_SESSION_MAX"})
"""Settings that users are meant to change in this file."""

MAX_ENTRY = 128 * 1024 - 1
"""Longest `KEY=value` in bytes: the kernel refuses to start a program with a longer one."""

MAX_TOTAL = 1024 * 1024
"""Most bytes that all keys and values may have together; twice that would be the kernel's end."""

_FIRST = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
_REST = _FIRST | frozenset("0123456789")
_UNESCAPE = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'"}
_ESCAPE = {value: f"\\{key}" for key, value in _UNESCAPE.items()}
_HEX = frozenset("0123456789abcdefABCDEF")
_SPACE = 0x20
_DELETE = 0x7F


def read(path: Path) -> dict[str, str]:
    """Return what the file sets; nothing when there is none.

    Raises InternalError when the file exists and cannot be read.
    """
    return EnvFile(_load(path)).values()


def keys(path: Path) -> list[str]:
    """Return the keys that the file sets, sorted."""
    return sorted(read(path))


def is_key(key: str) -> bool:
    """Tell whether `key` can be the name of a variable."""
    return bool(key) and key[0] in _FIRST and _REST.issuperset(key)


def is_reserved(key: str) -> bool:
    """Tell whether setting `key` takes `force`."""
    return key in RESERVED or (key.startswith(RESERVED_PREFIXES) and key not in ALLOWED)


def set_values(
    path: Path, values: Mapping[str, str], *, force: bool = False, timeout: float = 10.0
) -> list[str]:
    """Set all of `values` at once and return the keys whose value changed.

    A known key keeps its place in the file, a new one goes to the end. `force` allows reserved
    keys. `timeout` (seconds) bounds the wait for other writers. Raises UsageError for what cannot
    be stored, ConflictError when the file stays locked, InternalError when it cannot be written;
    in all cases the file is as before.
    """
    for key, value in values.items():
        _check(key, value, force=force)

    def edit(document: EnvFile) -> list[str]:
        before = document.values()
        for key, value in values.items():
            document.set(key, value)
        after = document.values()
        if sum(len(_encode(key + value)) + 2 for key, value in after.items()) > MAX_TOTAL:
            raise UsageError(
                f"all values together would exceed {MAX_TOTAL // 1024} KiB, which is more than a"
                " program can be started with; keep large values in files of their own"
            )
        return [key for key in values if before.get(key) != after[key]]

    return _edit(path, edit, timeout)


def unset(path: Path, names: Iterable[str], *, timeout: float = 10.0) -> list[str]:
    """Remove the keys `names` and return those that had been there. Errors as in `set_values`."""
    wanted = list(names)
    for name in wanted:
        _check_key(name)

    def edit(document: EnvFile) -> list[str]:
        return [name for name in wanted if document.unset(name)]

    return _edit(path, edit, timeout)


class EnvFile:
    """The text of an environment file; edits touch only the lines of the key concerned."""

    def __init__(self, data: bytes = b"") -> None:
        self._lines = _decode(data).split("\n")

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        return _encode("\n".join(self._lines))

    def values(self) -> dict[str, str]:
        """Return what the file sets, in the order of its lines."""
        result: dict[str, str] = {}
        for line in self._lines:
            key, separator, raw = line.partition("=")
            if separator and is_key(key):
                result[key] = parse_value(raw)
        return result

    def set(self, key: str, value: str) -> None:
        """Give `key` the value `value`; the caller has checked both."""
        line = f"{key}={format_value(value)}"
        places = self._places(key)
        if places:
            if parse_value(self._lines[places[-1]].partition("=")[2]) != value:
                self._lines[places[-1]] = line
            # Earlier lines never counted, and might keep a secret that was meant to go.
            for index in reversed(places[:-1]):
                del self._lines[index]
        elif self._lines[-1] == "":
            self._lines[-1:] = [line, ""]
        else:  # the last line has no newline of its own
            self._lines += [line, ""]

    def unset(self, key: str) -> bool:
        """Remove every line of `key`; tell whether there was one."""
        places = self._places(key)
        for index in reversed(places):
            del self._lines[index]
        if not self._lines:
            self._lines = [""]
        return bool(places)

    def _places(self, key: str) -> list[int]:
        start = f"{key}="
        return [index for index, line in enumerate(self._lines) if line.startswith(start)]


def parse_value(raw: str) -> str:
    """Return the value that the text after `=` stands for."""
    if len(raw) >= 2 and raw[0] == raw[-1] and raw[0] in "\"'":
        return raw[1:-1]
    if raw.startswith("$'"):
        value = _unescape(raw)
        if value is not None:
            return value
    return raw


def format_value(value: str) -> str:
    """Return the plainest text that `parse_value` turns back into `value`."""
    if not any(map(_is_control, value)):
        mark = "'" if value.startswith('"') else '"'
        for candidate in (value, f"{mark}{value}{mark}"):
            # Blanks at the end of a line are quoted: editors like to drop them.
            if parse_value(candidate) == value and candidate == candidate.strip():
                return candidate
    return "$'" + "".join(_escape(char) for char in value) + "'"


def _escape(char: str) -> str:
    if char in _ESCAPE:
        return _ESCAPE[char]
    return f"\\x{ord(char):02x}" if _is_control(char) else char


def _is_control(char: str) -> bool:
    return ord(char) < _SPACE or ord(char) == _DELETE


def _unescape(raw: str) -> str | None:
    """Return what `$'…'` means, or None when `raw` is not that from its start to its end."""
    result: list[str] = []
    index, end = 2, len(raw) - 1
    while index < end:
        char = raw[index]
        if char == "'":
            return None
        if char != "\\":
            result.append(char)
            index += 1
            continue
        following = raw[index + 1]
        if following == "x":
            digits = raw[index + 2 : index + 4]
            code = int(digits, 16) if len(digits) == 2 and _HEX.issuperset(digits) else 0
            if not 0 < code <= _DELETE:
                return None
            result.append(chr(code))
            index += 4
        elif following in _UNESCAPE:
            result.append(_UNESCAPE[following])
            index += 2
        else:
            return None
    return "".join(result) if index == end and raw[end] == "'" else None


def _check(key: str, value: str, *, force: bool) -> None:
    _check_key(key)
    if is_reserved(key) and not force:
        raise UsageError(
            f"{key} is reserved: the wrong value breaks every session at once;"
            " if you mean it, add --force"
        )
    if "\0" in value:
        raise UsageError(f"the value of {key} contains a NUL byte, which no variable can hold")
    try:
        size = len(_encode(f"{key}={value}"))
    except UnicodeEncodeError:
        raise UsageError(f"the value of {key} is not text that can be stored as UTF-8") from None
    if size > MAX_ENTRY:
        raise UsageError(
            f"the value of {key} has {size - len(key) - 1} bytes; a program cannot be started with"
            f" more than {MAX_ENTRY - len(key) - 1} in it: keep it in a file and set the path"
        )


def _check_key(key: str) -> None:
    if not is_key(key):
        raise UsageError(
            f"{key[:60]!r} is not a variable name; use letters, digits and '_',"
            " not starting with a digit"
        )


def _edit(path: Path, change: Callable[[EnvFile], list[str]], timeout: float) -> list[str]:
    from agent_box import locking  # only writers pay for it

    with locking.locked(path, timeout):
        before = _load(path)
        document = EnvFile(before)
        changed = change(document)
        after = document.to_bytes()
        if after != before:
            locking.clear_leftovers(path)
            try:
                locking.atomic_write(path, after)
            except OSError as error:
                raise InternalError(
                    f"cannot write {path}: {error.strerror}; nothing was changed"
                ) from error
    return changed


def _load(path: Path) -> bytes:
    try:
        # O_NONBLOCK: somebody's FIFO of that name must not hang the start of a session.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InternalError(f"{path} is not a plain file; move it away")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(descriptor)


def _unreadable(path: Path, error: OSError) -> InternalError:
    return InternalError(
        f"cannot read {path}: {error.strerror}; it must be a plain file that you own"
    )


def _decode(data: bytes) -> str:
    # Bytes that are not UTF-8 travel through unchanged.
    return data.decode("utf-8", "surrogateescape")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
