"""Delivers webhooks at full speed and one by one, inside the guest, and stamps what arrives.

Runs on the guest's own Python as the user, standard library only. Reads a job from standard input:

    {"directory": STATE_DIR, "socket": PATH, "secret": TEXT, "peers": N, "senders": N, "count": N,
     "single": N, "reference": SCRIPT or null, "pane": {"tmux": ARGV, "target": PANE} or null}

and prints {"rate": deliveries a second, "lost": lines that peers missed, "arrival": [ms],
"pane": [ms], "memory": MB}. With "reference" it starts that receiver and measures it instead.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

STAMP = (
    "import os, sys, time\n"
    "with open(sys.argv[1], 'a') as out:\n"
    "    while data := os.read(0, 65536):\n"
    "        out.write(f'{time.time()} {data!r}\\n'); out.flush()\n"
)
PATIENCE = 60.0


class Connection(http.client.HTTPConnection):
    """A connection to a UNIX socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self.path = path

    def connect(self) -> None:
        """Connect."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Peer:
    """Stands for a plugin process: takes connections as it does, and stamps each line."""

    def __init__(self, instances: Path, name: str) -> None:
        self.stamps: dict[int, float] = {}
        path = instances / f"{name}.{os.getpid()}.sock"
        path.unlink(missing_ok=True)
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(str(path))
        self.listening.listen(16)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        """Take connections."""
        while True:
            link, _ = self.listening.accept()
            threading.Thread(target=self.read, args=(link,), daemon=True).start()

    def read(self, link: socket.socket) -> None:
        """Stamp lines."""
        data = b""
        while chunk := link.recv(1 << 20):
            *lines, data = (data + chunk).split(b"\n")
            now = time.time()
            for line in lines:
                self.stamps[json.loads(line)["payload"]["number"]] = now


class Bench:
    """One receiver under measurement."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.directory = Path(job["directory"])
        self.socket: str = job["socket"]
        self.process: subprocess.Popen[bytes] | None = None
        self.number = int(time.time() * 1000)

    def start_reference(self) -> None:
        """Start the other receiver on a socket that it is handed, as systemd would."""
        self.directory.mkdir(parents=True, exist_ok=True)
        source = {"sources": {"github": {"secret": self.job["secret"]}}}
        (self.directory / "sources.json").write_text(json.dumps(source))
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(self.socket)
        listening.listen(1024)
        number = listening.fileno()
        code = (
            f"import os, sys; os.dup2({number}, 3); os.environ.update(LISTEN_FDS='1',"
            " LISTEN_PID=str(os.getpid()));"
            " os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
        )
        env = {**os.environ, "LOCAL_WEBHOOK_STATE_DIR": str(self.directory),
               "LOCAL_WEBHOOK_RECEIVER_ONLY": "1", "LOCAL_WEBHOOK_PORT": "0"}  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, self.job["reference"]],
            env=env, pass_fds=(number, 3) if number != 3 else (3,), stderr=subprocess.DEVNULL,
        )  # fmt: skip
        end = time.monotonic() + PATIENCE
        while not (self.directory / "receiver.json").exists() and time.monotonic() < end:
            time.sleep(0.05)

    def post(self, number: int, link: Connection | None = None) -> None:
        """Deliver one event."""
        document = {"number": number, "action": "opened", "filler": "x" * 4000,
                    "issue": {"number": number, "title": f"bench-{number}-"},
                    "repository": {"full_name": "acme/widgets"}}  # fmt: skip
        body = json.dumps(document).encode()
        signature = hmac.new(self.job["secret"].encode(), body, hashlib.sha256).hexdigest()
        headers = {"X-Hub-Signature-256": f"sha256={signature}", "X-GitHub-Event": "issues",
                   "X-GitHub-Delivery": str(number), "X-Forwarded-For": "192.0.2.1"}  # fmt: skip
        mine = link or Connection(self.socket)
        mine.request("POST", "/github", body, headers)
        answer = mine.getresponse()
        text = answer.read()
        if link is None:
            mine.close()
        if (answer.status, text) != (200, b"ok"):
            raise SystemExit(f"answered {answer.status} {text!r}")

    def burst(self, peers: list[Peer]) -> tuple[float, int]:
        """Deliver at full speed; return deliveries a second until all are there, and losses."""
        count, senders = self.job["count"], self.job["senders"]
        first = self.number
        self.number += count

        def send(offset: int) -> None:
            for number in range(first + offset, first + count, senders):
                self.post(number)

        threads = [threading.Thread(target=send, args=(offset,)) for offset in range(senders)]
        began = time.time()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wanted = set(range(first, first + count))
        end = time.time() + 20
        while time.time() < end and any(wanted - set(peer.stamps) for peer in peers):
            time.sleep(0.01)
        lost = sum(len(wanted - set(peer.stamps)) for peer in peers)
        last = max(
            (max(peer.stamps.values(), default=began) for peer in peers), default=time.time()
        )
        # What nobody got does not count as delivered.
        delivered = count - lost / max(len(peers), 1)
        return delivered / (max(last, began + 1e-6) - began), lost

    def singles(self, peers: list[Peer]) -> list[float]:
        """Deliver one by one; return the milliseconds until the last peer has each."""
        found = []
        for _ in range(self.job["single"]):
            self.number += 1
            began = time.time()
            self.post(self.number)
            end = began + 2
            while time.time() < end and not all(self.number in peer.stamps for peer in peers):
                time.sleep(0.0005)
            stamps = [peer.stamps.get(self.number, end) for peer in peers]
            found.append((max(stamps) - began) * 1000)
            time.sleep(0.02)
        return found

    def panes(self) -> list[float]:
        """Deliver one by one; return the milliseconds until each shows in the pane."""
        pane = self.job["pane"]
        # In the home: the sandbox has a /tmp of its own.
        with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
            script, out = Path(folder, "stamp.py"), Path(folder, "stamps")
            script.write_text(STAMP)
            out.touch()
            pipe = ["pipe-pane", "-O", "-t", pane["target"], f"python3 {script} {out}"]
            subprocess.run([*pane["tmux"], *pipe], check=True)
            time.sleep(1)
            found = []
            for _ in range(self.job["single"]):
                self.number += 1
                mark = f"bench-{self.number}-"
                began = time.time()
                self.post(self.number)
                end = began + 15
                shown: list[float] = []
                while time.time() < end and not shown:
                    time.sleep(0.002)
                    lines = out.read_text().splitlines()
                    shown = [float(line.split()[0]) for line in lines if mark in line]
                if not shown:
                    raise SystemExit(f"{mark} never showed")
                found.append((shown[0] - began) * 1000)
                time.sleep(0.05)
            subprocess.run([*pane["tmux"], "pipe-pane", "-t", pane["target"]], check=True)
        return found

    def run(self) -> dict[str, Any]:
        """Measure everything."""
        if self.job["reference"]:
            self.start_reference()
        instances = self.directory / "instances"
        instances.mkdir(mode=0o700, exist_ok=True)
        peers = [Peer(instances, f"bench{number}") for number in range(self.job["peers"])]
        try:
            arrival = self.singles(peers)
            rate, lost = self.burst(peers)
            panes = self.panes() if self.job["pane"] else []
            pid = self.process.pid if self.process else self.job["pid"]
            status = Path(f"/proc/{pid}/status").read_text()
            peak = next(line.split()[1] for line in status.splitlines() if "VmHWM" in line)
            return {"rate": rate, "lost": lost, "arrival": arrival, "pane": panes,
                    "memory": int(peak) / 1000}  # fmt: skip
        finally:
            if self.process is not None:
                self.process.send_signal(signal.SIGKILL)
            for peer in peers:
                with contextlib.suppress(OSError):
                    Path(peer.listening.getsockname()).unlink()


if __name__ == "__main__":
    json.dump(Bench(json.load(sys.stdin)).run(), sys.stdout)
