"""bob against alice: everything that one user could try on another is refused.

One table. Each cell is an attack, a shell script that exits 0 exactly when it got through. bob
runs it from a login shell and from inside his sandbox, and it must fail in both. Then somebody
who may (alice, or root) runs the very same script and it must work: an attack that fails for
everybody proves nothing. `mutations` holds, for each cell, a one-line change that lets
bob through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from agent_box_harness import outside
from agent_box_harness.attack import attack_as_root, attack_from_login, attack_from_session

if TYPE_CHECKING:
    from agent_box_harness.attack import Outcome
    from agent_box_harness.box import Box

BOTH, LOGIN, SESSION = ("login", "session"), ("login",), ("session",)
STAGES = {
    # What alice may have done herself. Each later stage takes away one more outer wall, so that
    # the wall behind it is tried, too.
    "closed": "true",
    "opened": "chmod 0755 $ALICE_HOME $ALICE_HOME/.config $ALICE_HOME/.config/agent-box "
    "$ALICE_HOME/.local $ALICE_HOME/.local/state $ALICE_HOME/.local/state/agent-box "
    "$ALICE_RUN $ALICE_RUN/launch; "
    "find $ALICE_HOME/.local/state/agent-box -type d -exec chmod 0755 {} +",
    # tmux itself refuses to work with such a directory, so that hers cannot help any more.
    "exposed": "chmod 0666 $ALICE_RUN/control.sock; chmod 0755 $(dirname $TMUX_SOCKET)",
    "wide-open": "chmod 0777 $TMUX_SOCKET",
    "closed-again": "chmod 0600 $ALICE_RUN/control.sock; chmod 0700 $(dirname $TMUX_SOCKET) "
    "$ALICE_RUN $ALICE_HOME",
}


def python(text: str) -> str:
    """Return a script that exits 0 unless these lines of Python raise."""
    return f"python3 - <<'EOF'\nimport ctypes, fcntl, os, socket\n{text}\nEOF"


def connect(path: str) -> str:
    return python(f"socket.socket(socket.AF_UNIX).connect(os.path.expandvars('{path}'))")


@dataclass(frozen=True)
class Cell:
    """One attack."""

    name: str
    script: str
    sides: tuple[str, ...] = BOTH
    """Where bob stands."""
    stage: str = "closed"
    control: str = "alice"
    """Who can do it: `alice` in her sandbox, `login` for her login shell, `root`, or nobody."""
    where: str = ""
    """Only on guests that have this file."""


CELLS = (
    # her home
    Cell("home-listing", "ls $ALICE_HOME"),
    Cell("home-read", "cat $ALICE_HOME/open-file"),
    Cell("home-write", "echo planted >$ALICE_HOME/planted"),
    Cell("home-link", "ln -f $ALICE_HOME/open-file $HOME/.stolen"),
    Cell("home-as-own-root", "unshare -Ur cat $ALICE_HOME/open-file"),
    # what agent-box keeps there, after she opened her home to all
    Cell("opened-home", "ls $ALICE_HOME", SESSION, "opened"),
    Cell("registry", "cat $ALICE_HOME/.config/agent-box/sessions.json", stage="opened"),
    Cell("registry-copy", "cat $ALICE_HOME/.config/agent-box/*.last-good", stage="opened"),
    Cell("env-file", "cat $ALICE_HOME/.config/agent-box/env", stage="opened"),
    Cell("side-state", "cat $ALICE_HOME/.local/state/agent-box/sessions/*.json", stage="opened"),
    Cell("long-prompt", "cat $ALICE_HOME/.local/state/agent-box/prompts/*", stage="opened"),
    Cell("scrollback", "cat $ALICE_HOME/.local/state/agent-box/logs/*/*.log", stage="opened"),
    Cell("core-dump", "cat $ALICE_HOME/core* || cat /var/lib/systemd/coredump/*",
         stage="opened", control="root"),
    # her run-time directory
    Cell("run-listing", "ls $ALICE_RUN"),
    Cell("launch-spec", "cat $ALICE_RUN/launch/*.json", stage="opened"),
    Cell("control-socket", connect("$ALICE_RUN/control.sock"), stage="opened"),
    Cell("notify-socket", python(
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "s.sendto(b'{}', os.path.expandvars('$ALICE_RUN/notify.sock'))"), stage="opened"),
    Cell("tmux-socket", connect("$TMUX_SOCKET"), stage="exposed", control="root"),
    Cell("control-request", python(
        "s = socket.socket(socket.AF_UNIX)\n"
        "s.connect(os.path.expandvars('$ALICE_RUN/control.sock'))\n"
        "s.sendall(b'{\"op\": \"ls\", \"args\": {}}\\n')\n"
        "assert b'sessions' in s.recv(4096)"), stage="exposed", control="login"),
    Cell("tmux-request", "test -n \"$(tmux -S $TMUX_SOCKET -N list-sessions)\"", stage="wide-open",
         control="root"),
    # her processes
    Cell("process-list", "ps -p $VICTIM"),
    Cell("prompt-on-command-line", "test \"$(tr '\\0' ' ' </proc/$AGENT/cmdline | "
         "grep -c 'prompt of alice')\" = 1"),
    Cell("process-environment", "cat /proc/$VICTIM/environ"),
    Cell("process-maps", "test -n \"$(cat /proc/$VICTIM/maps)\""),
    Cell("process-files", "ls /proc/$VICTIM/fd"),
    Cell("process-root", "ls /proc/$VICTIM/root/tmp"),
    Cell("process-namespaces", "nsenter -t $VICTIM -m true", control="root"),
    Cell("ptrace", python(
        "assert ctypes.CDLL(None).ptrace(0x4206, int(os.environ['VICTIM']), 0, 0) == 0"),
        control="root"),
    Cell("steal-descriptor", python(
        "fd = os.pidfd_open(int(os.environ['VICTIM']))\n"
        "assert ctypes.CDLL(None).syscall(438, fd, 0, 0) >= 0"), control="root"),
    Cell("signal", "env kill -CONT $VICTIM"),
    Cell("renice", "renice -n 5 -p $VICTIM"),
    Cell("limits-of-process", "prlimit --pid $VICTIM --core=0:"),
    Cell("oom-score", "echo 900 | tee /proc/$VICTIM/oom_score_adj", control="root"),
    # her control groups; in a sandbox there are only one's own
    Cell("cgroup-kill", ": >>$ALICE_GROUP/cgroup.kill", control="login"),
    Cell("cgroup-freeze", "echo 0 >$ALICE_GROUP/cgroup.freeze", control="login"),
    Cell("cgroup-join", "sleep 9 & echo $! >$ALICE_GROUP/cgroup.procs", control="root"),
    # her traces in the journal
    Cell("journal", "test -n \"$(journalctl -q -n 1 -o cat _UID=$ALICE_UID)\"", control="login"),
    Cell("journal-file", "cat /var/log/journal/*/user-$ALICE_UID.journal", control="login"),
    # services that act for whom they trust
    Cell("unit-start", "systemctl --no-ask-password start agent-box-alice", control="root"),
    Cell("unit-kill", "systemctl --no-ask-password kill -s CONT agent-box-alice", control="root"),
    Cell("unit-property", "systemctl --no-ask-password set-property --runtime agent-box-alice "
         "CPUWeight=90", control="root"),
    Cell("unit-stop", "systemctl --no-ask-password stop agent-box-alice", control="nobody"),
    Cell("unit-over-varlink", "varlinkctl call /run/systemd/io.systemd.Manager "
         "io.systemd.Unit.SetProperties '{\"name\":\"agent-box-alice.service\",\"runtime\":true,"
         "\"properties\":{\"Markers\":[\"needs-restart\"]}}'", control="root"),
    Cell("systemd-run", "systemd-run --no-ask-password -q --wait --uid=alice true",
         control="root"),
    Cell("run0", "run0 --no-ask-password --pipe -u alice true", control="root"),
    Cell("user-manager", connect("/run/user/$ALICE_UID/systemd/private"), control="login"),
    Cell("linger", "loginctl --no-ask-password enable-linger alice", control="root"),
    Cell("kill-user", "loginctl --no-ask-password kill-user -s CONT alice", control="root"),
    Cell("crontab-read", "cat /var/spool/cron/crontabs/alice", control="root",
         where="/usr/bin/crontab"),
    Cell("crontab-write", "echo '# planted' | tee -a /var/spool/cron/crontabs/alice",
         control="root", where="/usr/bin/crontab"),
    Cell("at-jobs", "cat $ALICE_JOB", control="root", where="/usr/bin/at"),
    # places that all share elsewhere
    Cell("tmp", "cat /tmp/alice-note"),
    Cell("var-tmp", "cat /var/tmp/alice-note"),
    Cell("tmp-from-outside", "ls $ALICE_TMP/tmp",
         control="root"),
    Cell("shared-memory", "cat /dev/shm/alice-note"),
    Cell("message-queue", python(
        "assert ctypes.CDLL(None).mq_open(b'/alice-note', os.O_RDWR) >= 0")),
    Cell("sysv-shared-memory", python("assert ctypes.CDLL(None).shmget(0x5ec, 1, 0) >= 0")),
    # her terminal
    Cell("terminal-read", ": <$ALICE_TTY"),
    Cell("terminal-write", "printf '\\0' >$ALICE_TTY"),
    Cell("terminal-input", python(
        "fd = os.open(os.environ['ALICE_TTY'], os.O_RDWR | os.O_NOCTTY)\n"
        "if os.getuid() != 0:\n    fcntl.ioctl(fd, 0x5412, b' ')"), control="root"),
    # becoming her
    Cell("su", "su alice -c true", control="root"),
    Cell("sudo-to-alice", "sudo -n -u alice true", control="root"),
    Cell("sudo-to-root", "sudo -n true", control="root"),
    Cell("ssh-as-alice", "ssh -o BatchMode=yes -o StrictHostKeyChecking=no -o ConnectTimeout=5 "
         "alice@127.0.0.1 true", control="nobody"),
    # doors without a lock
    Cell("loopback-ports", python(
        "lines = open('/proc/net/tcp').readlines()[1:]\n"
        "ports = {int(f[1].split(':')[1], 16) for f in map(str.split, lines) if f[3] == '0A'}\n"
        "ports -= {22, 53, 80, 443}  # ssh, names and the edge are for all\n"
        "print(ports)\nassert ports"), control="nobody"),
    Cell("abstract-sockets", python(
        "rows = [r.split() for r in open('/proc/net/unix').readlines()[1:]]\n"
        "names = {r[7] for r in rows if len(r) == 8 and r[7][0] == '@' and r[3] == '00010000'}\n"
        "print(names)\nassert names"), control="nobody"),
)  # fmt: skip

PREPARE = """\
import ctypes, os, pathlib, time
for folder in ("/tmp", "/var/tmp", "/dev/shm"):
    note = pathlib.Path(folder, "alice-note")
    note.write_text("secret")
    note.chmod(0o644)
libc = ctypes.CDLL(None)
assert libc.shmget(0x5ec, 4096, 0o1666) >= 0
os.umask(0)
assert libc.mq_open(b"/alice-note", os.O_RDWR | os.O_CREAT, 0o666, None) >= 0
time.sleep(100000)
"""
"""What the victim does: leaves notes that every user may read in each place that it can."""

Verdicts = dict[tuple[str, str], "Outcome"]
_collected: list[Verdicts] = []
"""At most one: what all the cells of this run came to."""


@pytest.mark.shared
@pytest.mark.limit(300)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_bob_against_alice(box: Box, cell: Cell, request: pytest.FixtureRequest):
    """bob cannot do to alice what she or root can, neither from a login nor from a session."""
    if not _collected:
        _collected.append({})  # if collecting fails, it fails once
        wanted = [
            item.callspec.params["cell"]
            for item in request.session.items
            if isinstance(item, pytest.Function) and item.originalname == request.node.originalname
        ]
        _collected[0] |= collect(box, wanted)
    verdicts = _collected[0]
    assert verdicts, "the attacks were not carried out: see the first cell"
    if (cell.name, cell.sides[0]) not in verdicts:
        pytest.skip(f"this guest has no {cell.where}")
    for side in cell.sides:
        outcome = verdicts[cell.name, side]
        assert not outcome.through, f"bob got through from his {side}: {outcome.output}"
    if cell.control != "nobody":
        outcome = verdicts[cell.name, "control"]
        assert outcome.through, f"not even {cell.control} can: {outcome}"


@pytest.mark.renewed
def test_planted_links(box: Box):
    """What bob plants in a shared directory is not what alice's session writes to."""
    for folder in ("/tmp", "/var/tmp", "/dev/shm"):
        plant = f"umask 0; touch $HOME/trap; chmod 0711 $HOME; ln -s $HOME/trap {folder}/out"
        box.as_user("bob", plant).check()
        box.in_session("bob", f"ln -sf $HOME/trap {folder}/out").check()
        assert box.in_session("alice", f"test -L {folder}/out").rc == 1
        box.in_session("alice", f"echo secret >{folder}/out").check()
        assert box.as_user("bob", "cat $HOME/trap").out == ""
        box.succeed(f"rm {folder}/out")


def collect(box: Box, cells: list[Cell]) -> Verdicts:
    """Run the attacks of cells in as few round trips as possible."""
    facts = prepare(box)
    present = [cell for cell in cells if not cell.where or box.run(f"test -e {cell.where}").rc == 0]
    exports = " ".join(f"{name}={value}" for name, value in facts.items())
    verdicts: Verdicts = {}
    for stage, command in STAGES.items():
        box.run(f"{exports}; {command}").check(stage)
        of_stage = [cell for cell in present if cell.stage == stage]
        for side, attack in (("login", attack_from_login), ("session", attack_from_session)):
            scripts = {cell.name: cell.script for cell in of_stage if side in cell.sides}
            for name, outcome in attack(box, "bob", scripts, facts).items() if scripts else ():
                verdicts[name, side] = outcome
        # After bob: what the others may do must not help him.
        for who in ("alice", "login", "root"):
            scripts = {cell.name: cell.script for cell in of_stage if cell.control == who}
            if not scripts:
                continue
            if who == "alice":
                outcomes = attack_from_session(box, "alice", scripts, facts)
            elif who == "login":
                outcomes = attack_from_login(box, "alice", scripts, facts)
            else:
                outcomes = attack_as_root(box, scripts, facts)
            verdicts |= {(name, "control"): outcome for name, outcome in outcomes.items()}
    return verdicts


def prepare(box: Box) -> dict[str, str]:
    """Give alice everything that bob could want; return where it is."""
    home, run = box.home("alice"), "/run/agent-box-alice"
    box.use_stub("claude")
    box.as_user("alice", "umask 022; echo secret >~/open-file").check()
    box.ctl("alice", "env set TOKEN secret").check()
    box.ctl("alice", "add ended --agent shell").check()
    box.ctl("alice", "add prompted --agent claude --prompt 'prompt of alice'").check()
    box.ctl("alice", "add long --agent claude --prompt-file -", stdin="x " * 80_000).check()
    box.wait_session("alice", "ended", "running")
    box.ctl("alice", "send ended 'exit 3'").check()
    box.in_session("alice", "umask 0; cd ~; ulimit -c unlimited; sh -c 'kill -SEGV $$'")
    uid = box.run("id -u alice").out
    box.run("loginctl enable-linger alice").check()
    box.wait_for_file(f"/run/user/{uid}/systemd/private")
    if box.run("test -e /usr/bin/crontab").rc == 0:
        box.run("echo '# of alice' | crontab -u alice -").check()
    job = ""
    if box.run("test -e /usr/bin/at").rc == 0:
        box.as_user("alice", "echo true | at now + 1 day").check()
        job = box.run("ls -d /var/spool/cron/atjobs/a*").check().out
    script = f"{home}/victim.py"
    box.write_file(script, PREPARE, mode=0o644)
    box.in_session("alice", f"setsid python3 {script} >/dev/null 2>&1 &").check()
    box.wait_for("the victim", lambda: outside.processes(box, "alice", "victim.py"))
    box.wait_for(
        "its notes", lambda: box.in_session("alice", "test -e /dev/mqueue/alice-note").rc == 0
    )
    state = f"{home}/.local/state/agent-box"
    box.wait_until_succeeds(f"ls {state}/logs/*/*.log {state}/prompts/*")
    for name in ("main", "prompted", "long"):
        box.wait_session("alice", name, "running")
    main = box.session("alice", "main")
    agent = box.session("alice", "prompted")
    box.wait_for("the agent", lambda: box.stub_prompts("alice"))
    return {
        "ALICE_HOME": home,
        "ALICE_RUN": run,
        "ALICE_UID": uid,
        "ALICE_JOB": job,
        "ALICE_TMP": "/var/lib/agent-box-tmp/alice",
        "TMUX_SOCKET": f"{run}/tmux-{uid}/agent-box",
        "ALICE_GROUP": f"{outside.group(box, outside.sandbox('alice'))}/session-{main['id']}",
        "ALICE_TTY": box.tmux("alice", "display-message -p -t =main: '#{pane_tty}'").check().out,
        "VICTIM": str(outside.processes(box, "alice", "victim.py")[0]),
        "AGENT": str(agent["pid"]),
    }
