#!/usr/bin/python3 -I
"""A steerable vendor: the sign-in half of claude, codex, gh, opencode and pi.

It prints what the real CLIs print and keeps its credentials where they do, so that everything
from the pane to the card can be driven without a network and without an account. Which CLI it is
says its own name. ``~/.vendor/NAME.json`` steers it:

``form``      how the address is written: ``plain``, ``hard`` (broken at the right edge by the
              program itself) or ``osc8`` (a hyperlink with other words on the screen)
``url``, ``decoys``, ``code``, ``prose``   what is shown; decoys and prose come before
``ask``       prompt for a code; ``raw``: read it byte by byte, so that nothing is translated
``until``     file in ``~/.vendor`` whose appearance stands for the person who signs in
``confirm``   a question to be answered with Enter first
``end``       ``ok``, ``expired``, ``disabled``, ``invalid``, ``refused`` (works, and the status
              denies it afterwards), ``silent`` (stays until it is ended), ``echo`` (fails and
              prints the code that it was given)
``pair``      results of successive ``remote-control pair``: ``ok``, ``invalidated``, ``enrol``,
              ``network``; the last one is repeated

Everything that it does is in ``~/.vendor/log.jsonl``: arguments, names of the variables that it
was given, bytes received (hex), whether a credential was there when it began. Only the standard
library: the file is copied into the guest and runs there alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import termios
import time
import tty
from pathlib import Path
from typing import Any

HOME = Path(os.environ.get("HOME", "/"))
FOLDER = HOME / ".vendor"
LONG = "x" * 400
TOKEN = "tok-0123456789abcdefghijklmnop"  # noqa: S105 - of nobody

URLS = {
    "claude": f"https://claude.ai/oauth/authorize?code=true&client_id=9d1c&state={LONG}",
    "codex": "https://auth.openai.com/codex/device",
    "gh": "https://github.com/login/device",
    "opencode": "https://github.com/login/device",
    "pi": "https://auth.openai.com/codex/device",
}


class Vendor:
    """One run of one CLI."""

    def __init__(self, argv: list[str]) -> None:
        self.name = Path(argv[0]).name
        self.words = argv[1:]
        try:
            self.steer: dict[str, Any] = json.loads((FOLDER / f"{self.name}.json").read_text())
        except (OSError, ValueError):
            self.steer = {}
        self.credential = self._credential()
        self.received = b""

    def _credential(self) -> Path:
        env = os.environ
        return {
            "claude": Path(env.get("CLAUDE_CONFIG_DIR", HOME / ".claude")) / ".credentials.json",
            "codex": Path(env.get("CODEX_HOME", HOME / ".codex")) / "auth.json",
            "gh": Path(env.get("GH_CONFIG_DIR", HOME / ".config/gh")) / "hosts.yml",
            "opencode": Path(env.get("XDG_DATA_HOME", HOME / ".local/share"))
            / "opencode/auth.json",
            "pi": Path(env.get("PI_CODING_AGENT_DIR", HOME / ".pi/agent")) / "auth.json",
        }[self.name]

    def log(self, **facts: Any) -> None:
        """Note what happened."""
        FOLDER.mkdir(parents=True, exist_ok=True)
        record = {"at": time.time(), "cli": self.name, "argv": self.words, **facts}
        descriptor = os.open(FOLDER / "log.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, json.dumps(record).encode() + b"\n")
        os.close(descriptor)

    def run(self) -> int:
        """Do what the arguments ask for."""
        words = " ".join(self.words)
        self.log(
            variables=sorted(os.environ),
            had=self.credential.exists(),
            host=os.uname().nodename,
            cgroup=Path("/proc/self/cgroup").read_text().strip(),
        )
        if "status" in self.words or words in ("auth list", "--list-models"):
            return self.status()
        if words.startswith("app-server"):
            return self.app_server(words)
        if words.startswith("remote-control pair"):
            return self.pair()
        if self.words == ["logout"]:
            self.credential.unlink(missing_ok=True)
            return 0
        if "login" in self.words:
            return self.login()
        print(f"{self.name}: waits")
        signal.pause()
        return 0

    # -- who is signed in -----------------------------------------------------------------

    def signed_in(self) -> bool:
        """Whether the stored credential is one."""
        try:
            return "token" in self.credential.read_text()
        except OSError:
            return False

    def status(self) -> int:
        """Answer in the words of the CLI."""
        yes = self.signed_in() and self.steer.get("end") != "refused"
        if self.name == "claude":
            print(json.dumps({"loggedIn": yes, "authMethod": "claude.ai" if yes else "none"}))
        elif self.name == "codex":
            print("Logged in using ChatGPT" if yes else "Not logged in", file=sys.stderr)
        elif self.name == "gh":
            if yes:
                print("github.com\n  ✓ Logged in to github.com account octo-alice (hosts.yml)")
            else:
                print("You are not logged into any GitHub hosts.", file=sys.stderr)
        elif self.name == "opencode":
            print("┌  Credentials ~/x\n│" + ("\n●  Anthropic api\n│" if yes else ""))
            print(f"└  {int(yes)} credentials")
            return 0
        else:
            print("anthropic  some-model  1M  128K" if yes else "No models available. Use /login")
            return 0
        return 0 if yes else 1

    # -- signing in -----------------------------------------------------------------------

    def login(self) -> int:
        """Sign in, or fail, as steered."""
        if self.name == "codex":
            # The real one does this before it prints a line.
            self.credential.unlink(missing_ok=True)
        end = self.steer.get("end", "ok")
        if end == "disabled":
            print("Error logging in with device code: device code login is not enabled for this "
                  "Codex server. Use the browser login or verify the server URL.")  # fmt: skip
            return 1
        for line in [*self.steer.get("decoys", []), *self.steer.get("prose", [])]:
            print(line)
        if self.steer.get("confirm"):
            print(f"! First copy your one-time code: {self.steer.get('code', 'WXYZ-1234')}")
            print("Press Enter to open https://github.com/login/device in your browser... ", end="")
            sys.stdout.flush()
            sys.stdin.readline()
            self.log(confirmed=True)
        else:
            self.show()
        sys.stdout.flush()
        if self.steer.get("ask"):
            self.read_code()
        return self.finish(end)

    def show(self) -> None:
        """Print the address and the code."""
        url = self.steer.get("url", URLS[self.name])
        if self.name == "claude":
            print("Opening browser to sign in…\nIf the browser didn't open, visit:")
        else:
            print("Follow these steps to sign in with ChatGPT using device code authorization:\n")
            print("1. Open this link in your browser and sign in to your account")
        form = self.steer.get("form", "plain")
        if form == "hard":
            width = os.get_terminal_size().columns
            print("\n".join(url[at : at + width] for at in range(0, len(url), width)))
        elif form == "osc8":
            print(f"\x1b]8;;{url}\x07\x1b[94mclick here to sign in\x1b[39m\x1b]8;;\x07")
        else:
            print(url)
        if self.steer.get("code"):
            print("\n2. Enter this one-time code (expires in 15 minutes)")
            print(f"   \x1b[94m{self.steer['code']}\x1b[0m\n")

    def read_code(self) -> None:
        """Take a code; Enter comes as a chunk of its own, as the real ones insist on."""
        sys.stdout.write(self.steer["ask"])
        sys.stdout.flush()
        before = termios.tcgetattr(0)
        if self.steer.get("raw"):
            tty.setraw(0)
        try:
            while True:
                chunk = os.read(0, 65536)
                if chunk in (b"\r", b"\n") or not chunk:
                    break
                self.received += chunk
        finally:
            termios.tcsetattr(0, termios.TCSANOW, before)
        self.log(received=self.received.hex())
        print()

    def finish(self, end: str) -> int:
        """End as steered."""
        gate = self.steer.get("until")
        while gate and not (FOLDER / gate).exists():
            time.sleep(0.1)
        if end == "silent":
            signal.pause()
        if end == "expired":
            print("Error: This device code has expired.")
            return 1
        if end == "invalid":
            print("Login failed: Invalid code. Please make sure the full code was copied")
            return 1
        if end == "echo":
            print(f"Login failed: the code {self.received.decode(errors='replace')} was refused")
            print(f"see {URLS[self.name]} token {TOKEN}")
            return 1
        FOLDER.mkdir(exist_ok=True)
        self.credential.parent.mkdir(parents=True, exist_ok=True)
        self.credential.write_text(json.dumps({"token": TOKEN, "at": time.time()}))
        print("Login successful")
        return 0

    # -- codex: the daemon ----------------------------------------------------------------

    def app_server(self, words: str) -> int:
        """Be the daemon, or ask it."""
        place = Path(os.environ.get("CODEX_HOME", HOME / ".codex")) / "app-server-control"
        path = place / "app-server-control.sock"
        if "version" in words:
            with socket.socket(socket.AF_UNIX) as client:
                try:
                    client.connect(str(path))
                except OSError:
                    return 1
            print(json.dumps({"status": "running"}))
            return 0
        place.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen(8)
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            while True:
                server.accept()[0].close()

    def pair(self) -> int:
        """Give a pairing code, or the steered trouble."""
        counter = FOLDER / "pairs"
        with contextlib.suppress(OSError):
            counter.touch()
        count = counter.stat().st_size
        with counter.open("a") as file:
            file.write(".")
        results = self.steer.get("pair", ["ok" if self.signed_in() else "enrol"])
        result = results[min(count, len(results) - 1)]
        if result == "ok":
            print("Enter this pairing code on your other device: PAIR-4711")
            return 0
        print("Error: remoteControl/pairing/start failed: " + {
            "invalidated": 'HTTP 401 Unauthorized: {"error":{"message":"Your authentication token '
                           'has been invalidated. Please try signing in again.",'
                           '"code":"token_invalidated"}}',
            "enrol": "remote control pairing is unavailable until enrollment completes",
            "network": "error sending request for url (https://chatgpt.com/backend-api)",
        }[result], file=sys.stderr)  # fmt: skip
        return 1


if __name__ == "__main__":
    sys.exit(Vendor(sys.argv).run())
