"""`agent-box-launch SPEC`: what a pane executes to become its agent.

Reads the launch spec that the supervisor wrote, joins the session's control group, loads
the env files of the user and the session, and replaces itself with the agent. No shell is
involved, so nothing needs quoting and a prompt of 100 KB arrives as it is.

Started for every session and on every respawn: it imports as little as it can.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import sys

TYPE_CHECKING = False  # what type checkers take for that of `typing`, which costs a tenth
if TYPE_CHECKING:
    from typing import Any, NoReturn

EXIT_FAILED = 78
"""Exit status of a launch that can never succeed as configured (EX_CONFIG of sysexits)."""

MORE_LIKELY = 300
"""Points of a thousand, each as good as a thousandth of the memory, more than the server has."""

CGROUP_ROOT = "/sys/fs/cgroup"
"""Where the sandbox sees its own delegated control group (ProtectControlGroups=private)."""


def main() -> NoReturn:
    """Run the spec that the first argument names."""
    if len(sys.argv) != 2:
        print("usage: agent-box-launch SPEC (started by the supervisor)", file=sys.stderr)
        sys.exit(2)
    path = sys.argv[1]
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  (pathlib costs 10 ms)
            spec = json.load(file)
    except (OSError, ValueError) as error:
        print(f"agent-box: cannot read the launch spec {path}: {error}", file=sys.stderr)
        sys.exit(1)
    run(spec)


def run(spec: dict[str, Any]) -> NoReturn:
    """Become the program of `spec`, or explain why that is impossible."""
    joined = _join_cgroup(spec)
    _go_first()
    env = _environment(spec)
    try:
        os.chdir(spec["cwd"])
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        _fail(spec, f"the working directory {spec['cwd']} cannot be entered ({why})")
    env["PWD"] = spec["cwd"]
    argv = spec["argv"]
    # Python ignores these; a program started with them ignored would never learn of a closed pipe.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    # Looked at before the good news goes out: `add` would call started what cannot start.
    try:
        if not os.stat(argv[0]).st_mode & 0o111:  # noqa: PTH116  (pathlib costs 10 ms)
            _fail(spec, f"the program {argv[0]} is not executable")
    except OSError as error:
        _fail(spec, _exec_reason(argv[0], error))
    except ValueError:
        pass  # told below
    _notify(spec, {"event": "exec", "cgroup": joined})
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606  (this is what the launcher is for)
    except OSError as error:
        _fail(spec, _exec_reason(argv[0], error))
    except ValueError as error:
        # A NUL or half a surrogate pair, from a hand-written entry.
        _fail(spec, f"an argument or variable holds a character that none can hold ({error})")


def _environment(spec: dict[str, Any]) -> dict[str, str]:
    from agent_box import envfile
    from agent_box.errors import AgentBoxError

    env = dict(os.environ)
    env.update(spec["env"])
    # One file only, in what a supervisor of before an upgrade writes.
    for path in spec.get("envFiles") or [spec["envFile"]]:
        try:
            env.update(envfile.read(path))
        except (AgentBoxError, OSError, ValueError) as error:
            # A secret that is missing is the agent's to report; a session that
            # does not start because of one odd line would be worse.
            print(f"agent-box: {path} was not loaded: {error}", file=sys.stderr)
    env.update(spec.get("identity", {}))
    return env


def _join_cgroup(spec: dict[str, Any]) -> bool:
    group = spec.get("cgroup")
    if not group:
        return False
    try:
        with open(f"{CGROUP_ROOT}/{group}/cgroup.procs", "w", encoding="ascii") as file:  # noqa: PTH123
            file.write("0")
    except OSError as error:
        print(f"agent-box: running without the session's limits ({error})", file=sys.stderr)
        return False
    return True


def _go_first() -> None:
    """Have the kernel end a program of a session before the terminal server of all of them."""
    try:
        with open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:  # noqa: PTH123
            present = int(file.read())
            file.seek(0)
            file.write(str(min(present + MORE_LIKELY, 1000)))
    except (OSError, ValueError):
        pass  # one without /proc, say


def _exec_reason(program: str, error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return f"the program {program} is not installed on this box"
    if error.errno == errno.E2BIG:
        return "the arguments and environment are larger than the kernel allows (2 MB)"
    return f"the program {program} cannot be run ({error.strerror})"


def _fail(spec: dict[str, Any], reason: str) -> NoReturn:
    print(f"agent-box: {reason}", file=sys.stderr)
    print("agent-box: correct it, then: agent-box-session restart " + spec["name"], file=sys.stderr)
    try:
        # Survives a supervisor that is down right now.
        with open(spec["failedFile"], "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump({"reason": reason, "launch": spec["launch"]}, file)
    except OSError:
        pass
    _notify(spec, {"event": "failed", "reason": reason})
    sys.exit(EXIT_FAILED)


def _notify(spec: dict[str, Any], message: dict[str, Any]) -> None:
    """Tell the supervisor, if it is there; it also finds out by itself, later."""
    message |= {"id": spec["id"], "launch": spec["launch"], "pid": os.getpid()}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            # The kernel queues ten datagrams at most; many sessions may start at once.
            sock.settimeout(1.0)
            sock.sendto(json.dumps(message).encode(), spec["notify"])
    except OSError:
        pass


if __name__ == "__main__":
    main()
