"""What is news about a session, and that it arrives."""

from __future__ import annotations

import queue
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from agent_box.errors import UsageError
from agent_box.notify.attention import DELAY, WORK, Desk, News, Sender, serve

NOW = 1_000_000.0


def view(state="running", reason=None, idle=None, name="main"):
    return {"name": name, "agent": "claude", "state": state, "reason": reason, "idleSince": idle}


def test_a_question_is_news_once_it_has_waited():
    desk = Desk()
    desk.see(view("waiting", "permission question"), NOW)
    assert desk.due(NOW + DELAY - 1) == []
    assert desk.next_due() == NOW + DELAY
    desk.see(view("waiting", "permission question"), NOW + 5)
    assert desk.due(NOW + DELAY) == [News("main", "main (claude) needs you: permission question")]
    desk.see(view("waiting", "permission question"), NOW + 60)
    assert desk.due(NOW + 600) == []
    assert desk.next_due() is None


def test_who_answers_at_once_is_not_told():
    desk = Desk()
    desk.see(view("waiting", "permission question"), NOW)
    desk.see(view(), NOW + 4)
    assert desk.due(NOW + 60) == []


def test_the_same_question_again_is_news_again():
    desk = Desk()
    for start in (NOW, NOW + 100):
        desk.see(view("waiting", "permission question"), start)
        assert len(desk.due(start + DELAY)) == 1
        desk.see(view(), start + 50)


def test_another_reason_is_other_news():
    desk = Desk()
    desk.see(view("waiting", "permission question"), NOW)
    desk.due(NOW + DELAY)
    desk.see(view("failed", "no such program"), NOW + 20)
    assert desk.due(NOW + 40) == [News("main", "main (claude) failed: no such program")]


def test_done_is_news_after_work_only():
    desk = Desk()
    desk.see(view(), NOW)
    desk.see(view(idle=NOW + WORK - 1), NOW + WORK)
    assert desk.due(NOW + 500) == []
    desk.see(view(), NOW + 500)
    done = NOW + 500 + WORK
    desk.see(view(idle=done), done + 3)
    desk.see(view(idle=done), done + 5)
    assert [news.text for news in desk.due(done + 3 + DELAY)] == [
        "main (claude) is done and waits for the next task"
    ]
    desk.see(view(idle=done), done + 100)
    assert desk.due(done + 500) == []


def test_a_removed_session_is_no_news():
    desk = Desk()
    desk.see(view("waiting", "x"), NOW)
    desk.forget("main")
    assert desk.due(NOW + 60) == []


@pytest.fixture
def receiver():
    """A receiver of notices that answers as `answers` says, 200 in the end."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            server.got.append((self.path, body, dict(self.headers)))
            self.send_response(server.answers.pop(0) if server.answers else 200)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self):
            server.got.append((self.path, "", {}))

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.got, server.answers = [], []
    server.url = f"http://127.0.0.1:{server.server_address[1]}/secret-topic"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_it_arrives(receiver):
    pauses = []
    sender = Sender(receiver.url, "https://box.example/alice/", pauses.append)
    assert sender.send(News("main", "main (claude) needs you: größer?"))
    ((path, body, headers),) = receiver.got
    assert (path, body) == ("/secret-topic", "main (claude) needs you: größer?")
    assert headers["Title"] == "Session main"
    assert headers["Click"] == "https://box.example/alice/?arg=main"


@pytest.mark.parametrize(
    ("answers", "taken", "attempts"),
    [([503, 429], True, 3), ([500, 500, 500], False, 3), ([403], False, 1), ([302], False, 1)],
)
def test_what_is_tried_again(receiver, caplog, answers, taken, attempts):
    receiver.answers = answers
    sender = Sender(receiver.url, None, lambda _: None)
    assert sender.send(News("main", "x")) is taken
    assert [path for path, _, _ in receiver.got] == ["/secret-topic"] * attempts
    assert "secret-topic" not in caplog.text


def test_nobody_there_and_the_address_stays_secret(caplog):
    sender = Sender("http://127.0.0.1:9/secret-topic", None, lambda _: None)
    assert not sender.send(News("main", "x"))
    assert "127.0.0.1" in caplog.text
    assert "secret-topic" not in caplog.text


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "ntfy.sh/topic", "http://"])
def test_addresses_that_are_none(url):
    with pytest.raises(UsageError):
        Sender(url, None, lambda _: None)


def test_events_become_news(receiver, monkeypatch):
    monkeypatch.setattr("agent_box.notify.attention.DELAY", 0.05)
    desk, events = Desk(), queue.Queue()
    events.put({"sessions": [view(), view("waiting", "question", name="other")]})
    events.put({"event": "session", "session": view("waiting", "login")})
    events.put({"event": "problems", "problems": []})
    sender = Sender(receiver.url, None, lambda _: None)
    for _ in range(5):
        serve(desk, sender, events)
        if desk.next_due() is None:
            break
    assert sorted(body for _, body, _ in receiver.got) == [
        "main (claude) needs you: login",
        "other (claude) needs you: question",
    ]
