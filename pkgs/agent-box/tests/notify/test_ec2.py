"""Reading the metadata service, and whatever else may answer in its place."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from agent_box.config import Cloud
from agent_box.notify import ec2, service
from agent_box.notify.watch import Notice, Stop, Tell

ACTION = "spot/instance-action"
TOKEN = "AQAEAtoken=="


@pytest.fixture
def imds():
    """A metadata service of version 2 that serves `pages` (path -> text or status)."""
    state = SimpleNamespace(pages={}, tokens=0, status=200)

    class Handler(BaseHTTPRequestHandler):
        def answer(self, status, text=""):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def do_PUT(self):
            asked = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
            if self.path != "/latest/api/token" or not asked:
                return self.answer(400)
            state.tokens += 1
            return self.answer(state.status, TOKEN)

        def do_GET(self):
            if self.headers.get("X-aws-ec2-metadata-token") != TOKEN:
                return self.answer(401)
            page = state.pages.get(self.path.removeprefix("/latest/meta-data/"), 404)
            return self.answer(page) if isinstance(page, int) else self.answer(200, page)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.client = ec2.Metadata(("127.0.0.2", "127.0.0.1"), server.server_address[1])
    yield state
    server.shutdown()
    server.server_close()


def test_nothing_announced(imds):
    assert ec2.interruption(imds.client) is None
    assert ec2.rebalance(imds.client) is None
    assert ec2.maintenance(imds.client) == []
    assert imds.tokens == 1


@pytest.mark.parametrize("action", ec2.ACTIONS)
def test_interruption(imds, action):
    imds.pages[ACTION] = json.dumps({"action": action, "time": "2026-11-30T08:22:00Z"})
    assert ec2.interruption(imds.client) == Notice("interruption", action, 1796026920.0)


def test_rebalance(imds):
    imds.pages["events/recommendations/rebalance"] = '{"noticeTime": "2026-11-30T08:22:00Z"}'
    assert ec2.rebalance(imds.client) == Notice("rebalance", "", 1796026920.0)


def test_maintenance(imds):
    event = {"NotBefore": "21 Jan 2027 09:00:43 GMT", "Code": "system-reboot", "State": "active"}
    imds.pages["events/maintenance/scheduled"] = json.dumps(
        [event, {**event, "State": "completed"}, "nonsense"]
    )
    assert ec2.maintenance(imds.client) == [Notice("maintenance", "system-reboot", 1800522043.0)]


@pytest.mark.parametrize(
    "page", ["<html>Not found</html>", "[]", '{"action": "dance"}', "{" * 5000, 500, 403, 301]
)
def test_what_is_no_notice_is_not_taken_for_one(imds, page):
    imds.pages[ACTION] = page
    with pytest.raises(ec2.MetadataError):
        ec2.interruption(imds.client)


def test_an_unreadable_time_is_a_notice_all_the_same(imds):
    imds.pages[ACTION] = '{"action": "stop", "time": "soon"}'
    assert ec2.interruption(imds.client) == Notice("interruption", "stop", None)


def test_a_rejected_token_is_renewed(imds):
    ec2.interruption(imds.client)
    imds.client._token = "stale"
    assert ec2.interruption(imds.client) is None
    assert imds.tokens == 2


def test_an_error_page_is_no_token(imds):
    imds.status = 404
    with pytest.raises(ec2.MetadataError, match="no token"):
        ec2.interruption(imds.client)


def test_nobody_answers():
    with pytest.raises(ec2.MetadataError, match="no answer"):
        ec2.interruption(ec2.Metadata(("127.0.0.1",), 9))


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("class/dmi/id/sys_vendor", "Amazon EC2\n", True),
        ("hypervisor/uuid", "ec2e1916-9099-7caf-fd21-012345abcdef\n", True),
        ("class/dmi/id/sys_vendor", "QEMU\n", False),
    ],
)
def test_is_ec2(tmp_path, file, text, found):
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert ec2.is_ec2(tmp_path) is found


class Monitor(service.Monitor):
    def __init__(self, imds, **options):
        super().__init__(None, Cloud(**options), imds.client)
        self.steps = []

    def _carry_out(self, steps):
        self.steps += steps


def test_a_service_that_comes_up_late_is_waited_for(imds):
    imds.status = 503
    monitor = Monitor(imds)
    waits = [monitor.once() for _ in range(7)]
    assert waits == sorted(waits)
    assert waits[-1] == service.LAST_RETRY
    imds.status, imds.pages["instance-life-cycle"] = 200, "spot"
    assert monitor.once() == 5
    assert monitor.spot


def test_a_notice_is_seen_whatever_else_is_broken(imds):
    imds.pages |= {
        "instance-life-cycle": "spot",
        ACTION: '{"action": "stop", "time": null}',
        "events/maintenance/scheduled": 500,
    }
    monitor = Monitor(imds, grace_period=0)
    assert monitor.once() <= 5
    assert [type(step) for step in monitor.steps] == [Tell, Stop]


def test_others_are_watched_seldom(imds):
    imds.pages["instance-life-cycle"] = "on-demand"
    monitor = Monitor(imds)
    assert monitor.once() == service.SELDOM
    assert monitor.spot is False
