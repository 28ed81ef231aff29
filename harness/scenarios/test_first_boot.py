"""The end of a launch from a template: the password that came with it, and word to who waits.

CloudFormation's side is played inside the guest.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from agent_box_harness.edge import PASSWORDS, Edge

if TYPE_CHECKING:
    from agent_box_harness.box import Box

UNIT = "agent-box-first-boot.service"
FOLDER = "/var/lib/agent-box-launch"
HEARD = "/run/heard"
PORT = 8766
SERVICE = f"""\
import http.server, pathlib
heard = pathlib.Path("{HEARD}")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_PUT(self):
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with heard.open("a") as file:
            print(self.path, self.headers.get("Content-Type", "-"), text, file=file)
        # The first attempt is lost.
        self.send_response(200 if heard.read_text().count("\\n") > 1 else 503)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", {PORT}), Handler).serve_forever()
"""


def launch(box: Box, password: str) -> None:
    """Leave on the box what a launch leaves there."""
    box.succeed(f"install -d -m 0700 {FOLDER}")
    box.write_file(f"{FOLDER}/password", password.encode() + b"\n", mode=0o600)
    address = f"http://127.0.0.1:{PORT}/handle?Signature=a%2Fb"
    box.write_file(f"{FOLDER}/signal", address.encode(), mode=0o600)
    box.write_file("/run/listen.py", SERVICE.encode())
    box.succeed("setsid -f python3 /run/listen.py </dev/null >/dev/null 2>&1")


def told(box: Box) -> list[dict[str, str]]:
    """Return what the launch has been told, one attempt after another."""
    lines = box.run(f"cat {HEARD}").out.splitlines()
    found = []
    for line in lines:
        path, kind, text = line.split(" ", 2)
        assert (path, kind) == ("/handle?Signature=a%2Fb", "-")
        found.append(json.loads(text))
    return found


def test_launch(box: Box) -> None:
    """Until the box answers the launch hears nothing; then its address, however often that takes.
    The password opens the box; its file, which no user could read, is gone.
    """
    edge = Edge(box)
    box.wait_for_unit("caddy.service")
    assert box.machine.get_unit_property(UNIT, "ConditionResult") == "no"
    launch(box, PASSWORDS["alice"])
    for user in box.users:
        assert box.as_user(user, f"cat {FOLDER}/password").rc != 0
        assert box.in_session(user, f"cat {FOLDER}/password").rc != 0
    box.succeed("systemctl stop caddy.service")
    box.succeed(f"systemctl start {UNIT}")
    box.wait_for(
        "the first look at the box",
        lambda: "does not answer" in box.succeed(f"journalctl -b -u {UNIT} -o cat"),
    )
    assert told(box) == []
    box.succeed("systemctl start caddy.service")
    box.wait_for("the end of the launch", lambda: box.run(f"ls {FOLDER}/signal").rc != 0)
    attempts = told(box)
    assert [each["Status"] for each in attempts] == ["SUCCESS", "SUCCESS"]
    assert attempts[0]["Data"] == "https://box.test/alice/"
    assert box.succeed(f"ls {FOLDER}") == ""
    assert edge.ask([edge.form("alice", PASSWORDS["alice"])])[0].status == 303
    assert PASSWORDS["alice"] not in box.succeed("journalctl -b -o cat")
    box.wait_for("it to end", lambda: box.machine.get_unit_property(UNIT, "SubState") == "dead")
    assert box.machine.get_unit_property(UNIT, "Result") == "success"


def test_refused_password(box: Box) -> None:
    """A password that is too easy to guess is not set, and the launch hears why at once."""
    edge = Edge(box)
    box.wait_for_unit("caddy.service")
    launch(box, "password12345678")
    box.succeed(f"systemctl start {UNIT}")
    box.wait_for("the end of the launch", lambda: box.run(f"ls {FOLDER}/signal").rc != 0)
    assert {each["Status"] for each in told(box)} == {"FAILURE"}
    assert "the password of the launch is refused" in told(box)[0]["Reason"]
    assert box.succeed(f"ls {FOLDER}") == ""
    assert edge.ask([edge.form("alice", "password12345678")])[0].status == 401
