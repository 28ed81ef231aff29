"""The QMP client against a fake server that speaks the protocol's lines."""

from __future__ import annotations

import json
import socket
import threading

import pytest

from agent_box_harness.errors import MachineError
from agent_box_harness.qmp import Qmp, QmpError


class Server:
    """Answers each command with the next prepared list of messages."""

    def __init__(self, path, answers):
        self.path = path
        self.seen = []
        self.answers = [[{"return": {}}], *answers]
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(1)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        connection, _ = self.listener.accept()
        with connection, connection.makefile("rwb") as stream:
            stream.write(b'{"QMP": {"version": {}, "capabilities": []}}\r\n')
            stream.flush()
            for answer in self.answers:
                self.seen.append(json.loads(stream.readline()))
                for message in answer:
                    stream.write(json.dumps(message).encode() + b"\r\n")
                stream.flush()


def test_commands_errors_and_events(tmp_path):
    server = Server(
        tmp_path / "qmp",
        [
            [{"event": "STOP"}, {"return": {"status": "paused"}}],
            [{"error": {"class": "GenericError", "desc": "no such thing"}}],
            [{"return": "text\r\n"}],
        ],
    )
    qmp = Qmp(tmp_path / "qmp")
    assert qmp.status() == "paused"
    assert qmp.events == [{"event": "STOP"}]
    with pytest.raises(QmpError, match="no such thing"):
        qmp.execute("nonsense", {"a": 1})
    assert qmp.monitor("info network") == "text\r\n"
    assert [message["execute"] for message in server.seen] == [
        "qmp_capabilities",
        "query-status",
        "nonsense",
        "human-monitor-command",
    ]
    assert server.seen[2]["arguments"] == {"a": 1}
    with pytest.raises(MachineError):
        qmp.execute("quit")
    qmp.close()


def test_a_missing_socket_is_given_up_when_the_process_has_ended(tmp_path):
    with pytest.raises(MachineError, match="cannot reach QEMU"):
        Qmp(tmp_path / "none", timeout=60, alive=lambda: False)
