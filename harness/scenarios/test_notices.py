"""The cloud announces that it takes the machine away: sessions hear of it, and come back.

The metadata service is played inside the guest, at its real address. Its pages are files.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_box_harness.box import Box

pytestmark = pytest.mark.renewed

DOCUMENT = "/etc/agent-box/box.json"
UNIT = "agent-box-notify.service"
ADDRESS = "169.254.169.254"
PAGES = "/run/imds"
FIRMWARE = "/sys/class/dmi/id"
MESSAGE = "taken away soon; touch /tmp/executed $(touch /tmp/executed) `touch /tmp/executed`"
GRACE = 6
SERVICE = """\
import http.server, pathlib
pages = pathlib.Path("/run/imds")
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status, text=""):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())
    def do_PUT(self):
        self.answer(200, "token")
    def do_GET(self):
        page = pages / self.path.removeprefix("/latest/meta-data/").replace("/", "+")
        if self.headers.get("X-aws-ec2-metadata-token") != "token":
            self.answer(401)
        elif page.exists():
            self.answer(200, page.read_text())
        else:
            self.answer(404, "<html>not found</html>")
http.server.ThreadingHTTPServer(("169.254.169.254", 80), Handler).serve_forever()
"""


@pytest.fixture
def _elsewhere(box: Box) -> Iterator[None]:
    """Whatever is played ends, and the box is on no cloud's machine any more."""
    document = box.read(DOCUMENT)
    yield
    box.run(f"pkill -f /run/[i]mds.py; ip addr del {ADDRESS}/32 dev lo")
    box.succeed(f"rm -rf {PAGES} /run/systemd/system/{UNIT}.d")
    box.write_file(DOCUMENT, document, mode=0o444)
    box.succeed(f"systemctl daemon-reload; systemctl restart {UNIT}; systemctl start caddy")


@pytest.mark.usefixtures("_elsewhere")
@pytest.mark.limit(150)
def test_interruption_and_its_withdrawal(box: Box) -> None:
    """Every agent is told of a Spot notice as a message, a shell only sees it and executes
    nothing; after the grace the sessions end, and when the notice is withdrawn they resume.
    """
    box.use_stub("claude")
    for user in box.users:
        box.ctl(user, "add work --agent claude --prompt 'first task'").check()
        box.ctl(user, "add plain --agent shell").check()
    _watch(box, grace=GRACE)
    before = {user: box.session(user, "work")["pid"] for user in box.users}
    _page(box, "spot/instance-action", json.dumps({"action": "stop", "time": _soon(120)}))
    for user in box.users:
        box.wait_for(f"the notice in {user}'s agent", lambda user=user: _told(box, user))
        box.wait_for(
            f"the notice in {user}'s shell",
            lambda user=user: "taken away soon" in box.pane_text(user, "plain"),
        )
    assert box.run("ls /tmp/executed").rc != 0
    for user in box.users:
        assert box.in_session(user, "ls /tmp/executed").rc != 0
        unit = f"agent-box-{user}.service"
        box.wait_for(
            f"the end of {unit}", lambda unit=unit: box.run(f"systemctl is-active {unit}").rc != 0
        )
    _page(box, "spot/instance-action", None)
    for user in box.users:
        view = box.wait_session(user, "work", "running")
        assert view["pid"] != before[user]
        # It runs a moment before it has noted that.
        box.wait_for(
            f"the next launch of {user}'s agent",
            lambda user=user: len(box.stub_launches(user)) == 2,
        )
        assert box.stub_launches(user)[-1]["argv"].count("--resume") == 1


@pytest.mark.usefixtures("_elsewhere")
def test_a_service_that_comes_late(box: Box) -> None:
    """A watch that finds no metadata service at boot goes on asking; an error page is no notice."""
    box.use_stub("claude")
    _watch(box, grace=GRACE, service=False)
    time.sleep(3)
    assert box.run(f"systemctl is-active {UNIT}").out == "active"
    _serve(box)
    _page(box, "spot/instance-action", "<html>500</html>")
    time.sleep(3)
    box.succeed("systemctl is-active agent-box-alice.service")
    _page(box, "spot/instance-action", json.dumps({"action": "terminate", "time": _soon(120)}))
    box.wait_for(
        "the end of the sessions",
        lambda: box.run("systemctl is-active agent-box-alice.service").rc != 0,
    )


def test_elsewhere(box: Box) -> None:
    """On a machine that is not the cloud's nothing watches, without a failure; on one whose
    firmware says that it is, something does.
    """
    box.wait_for(
        "the watch to end", lambda: box.machine.get_unit_property(UNIT, "SubState") == "dead"
    )
    assert box.machine.get_unit_property(UNIT, "Result") == "success"
    # A container shows the host's, or none.
    place = box.succeed(f"readlink -e {FIRMWARE} || echo /sys/class").strip()
    box.succeed(f"mount -t tmpfs tmpfs {place} && mkdir -p {FIRMWARE}")
    for vendor, state in (("Amazon", "inactive"), ("Amazon EC2", "active")):
        box.succeed(f"echo '{vendor}' >{FIRMWARE}/board_vendor; systemctl restart {UNIT}")
        assert box.run(f"systemctl is-active {UNIT}").out == state
    box.succeed(f"umount {place}; systemctl restart {UNIT}")


def _watch(box: Box, *, grace: float, service: bool = True) -> None:
    """Tell the box that it runs on EC2, and play EC2."""
    document = json.loads(box.read(DOCUMENT))
    document["cloud"] |= {
        "provider": "ec2", "gracePeriod": grace, "pollInterval": 1, "message": MESSAGE,
    }  # fmt: skip
    box.succeed(f"cat >/run/box.json && mv /run/box.json {DOCUMENT}",
                stdin=json.dumps(document))  # fmt: skip
    # The edge has port 80 of every address.
    box.succeed(f"systemctl stop caddy; mkdir -p {PAGES}; ip addr add {ADDRESS}/32 dev lo")
    # What the machine is, is known whenever anybody answers: the watch asks once.
    _page(box, "instance-life-cycle", "spot")
    if service:
        _serve(box)
    # Where the provider is named, the firmware is not asked.
    folder = f"/run/systemd/system/{UNIT}.d"
    box.write_file(
        f"{folder}/named.conf", b"[Unit]\nConditionFirmware=\nConditionVirtualization=\n"
    )
    box.succeed(f"systemctl daemon-reload && systemctl restart {UNIT}")


def _serve(box: Box) -> None:
    box.write_file("/run/imds.py", SERVICE.encode())
    box.succeed("setsid -f python3 /run/imds.py </dev/null >/dev/null 2>&1")
    box.wait_until_succeeds(f"curl -sS -o /dev/null http://{ADDRESS}/")


def _page(box: Box, path: str, text: str | None) -> None:
    file = f"{PAGES}/{path.replace('/', '+')}"
    if text is None:
        box.succeed(f"rm {file}")
    else:
        box.write_file(file, text.encode())


def _soon(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def _told(box: Box, user: str) -> bool:
    return any(MESSAGE in prompt["prompt"] for prompt in box.stub_prompts(user))


HANGING = """\
import json, os, socket, sys, threading, time
path = f"/run/agent-box-bob/control.sock"
os.rename(path, path + ".away")
if sys.argv[1] == "link":
    os.symlink("/run/agent-box-alice/control.sock", path)
    sys.exit()
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen(256)
sessions = [{"name": f"s{n}", "state": "running"} for n in range(200)]
def serve(connection):
    for line in connection.makefile("rb"):
        if json.loads(line)["op"] == "ls":
            reply = {"ok": True, "result": {"sessions": sessions}}
            connection.sendall(json.dumps(reply).encode() + b"\\n")
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


@pytest.mark.usefixtures("_elsewhere")
@pytest.mark.limit(150)
def test_a_user_who_answers_the_news_with_silence(box: Box) -> None:
    """A socket of bob's that lists 200 sessions and then says nothing costs alice nothing: she is
    told at once, and the machine is left in time. A link of his to her socket is not followed.
    """
    box.use_stub("claude")
    box.ctl("alice", "add work --agent claude --prompt 'first task'").check()
    box.write_file("/run/hanging.py", HANGING.encode(), mode=0o644)
    box.as_user("bob", "python3 /run/hanging.py link").check()
    _watch(box, grace=GRACE)
    _page(box, "spot/instance-action", json.dumps({"action": "hibernate", "time": _soon(120)}))
    box.wait_for("the notice in alice's agent", lambda: _told(box, "alice"))
    box.wait_until_succeeds(
        f"journalctl -b -o cat -u {UNIT} | grep 'bob are not told.*no socket of its owner'"
    )
    _page(box, "spot/instance-action", None)
    box.wait_until_succeeds(f"journalctl -b -o cat -u {UNIT} | grep 'keeps this machine'")
    before = len([each for each in box.stub_prompts("alice") if MESSAGE in each["prompt"]])
    assert before == 1

    box.as_user("bob", "rm /run/agent-box-bob/control.sock").check()
    box.as_user("bob", "mv /run/agent-box-bob/control.sock.away /run/agent-box-bob/control.sock")
    box.as_user("bob", "setsid -f python3 /run/hanging.py hang </dev/null >/dev/null 2>&1").check()
    box.wait_until_succeeds("test -S /run/agent-box-bob/control.sock.away")
    start = time.monotonic()
    _page(box, "spot/instance-action", json.dumps({"action": "stop", "time": _soon(120)}))
    box.wait_for(
        "the second notice in alice's agent",
        lambda: len([e for e in box.stub_prompts("alice") if MESSAGE in e["prompt"]]) == 2,
    )
    box.wait_for(
        "the end of her sessions",
        lambda: box.run("systemctl is-active agent-box-alice.service").rc != 0,
    )
    assert time.monotonic() - start < box.machine.scaled(GRACE + 25)
    box.succeed("pkill -f /run/[h]anging.py; systemctl restart agent-box-supervisor-bob.service")


RECEIVER = """\
import http.server, json
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with open("/run/notices", "a") as file:
            file.write(json.dumps([self.path, self.headers["Click"], body]) + "\\n")
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", 8765), Handler).serve_forever()
"""


def test_a_question_reaches_people_elsewhere(box: Box) -> None:
    """An agent that asks something is told to the address that its user gave, once, with a link
    to the session; nobody else's agents are told there, and other users do not learn the address.
    """
    box.write_file("/run/receiver.py", RECEIVER.encode())
    box.succeed("setsid -f python3 /run/receiver.py </dev/null >/dev/null 2>&1")
    box.use_stub("claude", signed_in=False)
    for user in ("alice", "bob"):
        box.stub_on_start(user, "dialog Select login method:")
        box.ctl(user, "add asks --agent claude").check()
        box.wait_session(user, "asks", "waiting")
    notices = box.wait_for("the notice", lambda: box.run("cat /run/notices").out, timeout=40)
    assert [json.loads(line) for line in notices.splitlines()] == [
        [
            "/alice-topic",
            "https://box.test/alice/?arg=asks",
            "asks (claude) needs you: sign-in needed: attach and finish the login",
        ]
    ]
    journal = box.run("journalctl -b -o cat -u 'agent-box-attention-*'").out
    assert "alice-topic" not in journal
    box.succeed("pkill -f /run/[r]eceiver.py; rm /run/notices")
