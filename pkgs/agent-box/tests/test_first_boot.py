"""The end of a launch: when the launch hears what, and what is left of its files."""

from __future__ import annotations

import http.server
import json
import shutil
import ssl
import subprocess
import threading
from types import SimpleNamespace

import pytest

from agent_box import first_boot
from agent_box.errors import InternalError, UsageError
from agent_box.first_boot import FirstBoot, probe, tell

CODE = "0123-4567-89AB-CDEF"


@pytest.fixture
def server():
    """An HTTP server that gives the listed answers, and notes what it was asked."""
    state = SimpleNamespace(answers=[200], asked=[], url="", port=0, http=None)

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            state.asked.append((self.command, self.path, self.headers, body))
            left = state.answers
            self.send_response(left.pop(0) if len(left) > 1 else left[0])
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self):
            self.answer()

        def do_PUT(self):
            self.answer()

        def log_message(self, *_):
            pass

    state.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.port = state.http.server_port
    state.url = f"http://127.0.0.1:{state.port}/handle?Signature=a%2Fb"
    thread = threading.Thread(target=state.http.serve_forever, daemon=True)
    thread.start()
    yield state
    state.http.shutdown()
    state.http.server_close()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(first_boot, "PAUSE", 0.01)
    monkeypatch.setattr(first_boot, "PATIENCE", 0.3)
    monkeypatch.setattr(first_boot, "TELLING", 0.3)


def test_it_is_told_until_it_is_heard(server, monkeypatch):
    monkeypatch.setattr(first_boot, "TELLING", 30)  # it ends with the last answer
    server.answers = [503, 500, 200]
    assert tell(server.url, None, "https://box.test/alice/")
    assert len(server.asked) == 3
    command, path, headers, body = server.asked[-1]
    assert (command, path) == ("PUT", "/handle?Signature=a%2Fb")
    assert "Content-Type" not in headers
    told = json.loads(body)
    assert (told["Status"], told["Data"]) == ("SUCCESS", "https://box.test/alice/")


def test_nobody_hears(server):
    server.answers = [403]
    assert not tell(server.url, "no")
    assert not tell("http://127.0.0.1:1/handle?x=1", "no")


def test_a_long_reason_is_cut(server):
    assert tell(server.url, "x" * 100_000)
    assert len(server.asked[0][3]) < 4096


@pytest.fixture
def launched(tmp_path, server, monkeypatch):
    """A launch whose box has yet to stand; `troubles` is what a look at it finds, in turn."""
    folder = tmp_path / "launch"
    folder.mkdir()
    (folder / "password").write_text("quiet otters count nine\n")
    (folder / "signal").write_text(f"{server.url}\n")
    state = SimpleNamespace(
        folder=folder, server=server, troubles=[None], passwords=[], down=0, claimed=True
    )

    def call(op, **arguments):
        if state.down:
            state.down -= 1
            raise InternalError("the gate does not answer")
        if op == "status":
            return {"users": {"alice": {"password": state.claimed}}}
        if op == "setup-code":
            assert arguments == {"user": "alice", "renew": True}
            return {"code": CODE}
        state.passwords.append((op, arguments))
        if "refused" in arguments["password"]:
            raise UsageError("too easy")
        return {}

    def look(domain, port, context):
        assert (domain, port) == ("box.test", 443)
        return state.troubles.pop(0) if len(state.troubles) > 1 else state.troubles[0]

    monkeypatch.setattr(first_boot.gate, "call", call)
    monkeypatch.setattr(first_boot, "probe", look)
    monkeypatch.setattr(first_boot, "Client", lambda _: SimpleNamespace(call=lambda _: {}))
    web = SimpleNamespace(domain="box.test", origins=["https://box.test"], root_user="alice")
    users = {"alice": SimpleNamespace(runtime_directory="/run/agent-box-alice")}
    box = SimpleNamespace(web=web, users=users)
    state.run = lambda: FirstBoot(box, folder, ssl.create_default_context(), 443).run()
    state.told = lambda: [json.loads(body) for *_, body in server.asked]
    state.left = lambda: sorted(path.name for path in folder.iterdir())
    return state


def test_a_box_that_stands_after_a_while(launched, monkeypatch):
    monkeypatch.setattr(first_boot, "PATIENCE", 60.0)
    launched.down = 2
    launched.troubles = ["no certificate yet", "no answer", None]
    assert launched.run() == 0
    want = ("set-password", {"user": "alice", "password": "quiet otters count nine"})
    assert launched.passwords == [want]
    (told,) = launched.told()
    assert (told["Status"], told["Data"]) == ("SUCCESS", "https://box.test/alice/")
    assert launched.left() == []


def test_a_launch_without_a_password_hears_a_code(launched, caplog):
    """It goes to the launch alone, and only from a box that stands."""
    (launched.folder / "password").unlink()
    launched.claimed = False
    launched.troubles = ["no answer"]
    caplog.set_level("DEBUG")
    assert launched.run() == 1
    assert CODE not in json.dumps(launched.told())
    (launched.folder / "signal").write_text(f"{launched.server.url}\n")
    launched.troubles = [None]
    assert launched.run() == 0
    told = launched.told()[-1]
    assert (told["Status"], told["Data"]) == ("SUCCESS", CODE)
    assert launched.left() == []
    assert CODE not in caplog.text


def test_no_code_where_there_is_a_password(launched):
    (launched.folder / "password").unlink()
    assert launched.run() == 0
    assert launched.told()[-1]["Data"] == "https://box.test/alice/"


def test_a_box_that_never_stands(launched):
    launched.troubles = ["https://box.test/ does not answer"]
    assert launched.run() == 1
    (told,) = launched.told()
    assert (told["Status"], told["Reason"]) == ("FAILURE", "https://box.test/ does not answer")
    assert launched.left() == []


def test_a_password_that_is_refused(launched):
    (launched.folder / "password").write_text("refused")
    assert launched.run() == UsageError.exit_code
    (told,) = launched.told()
    assert told["Status"] == "FAILURE"
    assert "the password of the launch is refused: too easy" in told["Reason"]
    assert launched.left() == []


def test_nobody_waits(launched):
    (launched.folder / "signal").unlink()
    assert launched.run() == 0
    assert launched.told() == []


def test_what_was_not_heard_is_told_at_the_next_boot(launched):
    launched.server.answers = [503]
    assert launched.run() == 1
    assert launched.left() == ["signal"]
    launched.server.answers = [200]
    assert launched.run() == 0
    assert len(launched.passwords) == 1
    assert launched.left() == []


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_look_from_outside(server, tmp_path):
    pem = tmp_path / "box.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "1", "-subj", "/CN=box.test", "-addext", "subjectAltName=DNS:box.test",
         "-keyout", pem, "-out", tmp_path / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(tmp_path / "cert.pem", pem)
    server.http.socket = shown.wrap_socket(server.http.socket, server_side=True)
    trusting = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    server.answers = [401]
    assert probe("box.test", server.port, trusting) is None
    assert server.asked[0][2]["Host"] == "box.test"
    assert "no certificate for other.test yet" in str(probe("other.test", server.port, trusting))
    doubting = ssl.create_default_context()
    assert "no certificate for box.test yet" in str(probe("box.test", server.port, doubting))
    server.answers = [200]
    assert "answers 200 instead" in str(probe("box.test", server.port, trusting))
    assert "does not answer" in str(probe("box.test", 1, trusting))
