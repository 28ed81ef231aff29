"""What somebody outside the machine knows about the sessions in it, whatever happens to it.

`Witness` gives `churn.py` its orders and hears its steps as they happen. `Ledger` keeps what
follows from them and holds it against what a registry lists after a power cut.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

from agent_box_harness.churn import AGENTS, KICKOFF
from agent_box_harness.errors import RequestFailedError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


class Ledger:
    """Which sessions must be listed, must not be, or may be either."""

    def __init__(self) -> None:
        self.listed: dict[str, str] = {}
        """Name -> id of sessions that must be listed."""
        self.gone: set[str] = set()
        """Names that must never be seen again."""
        self.unanswered: dict[str, str] = {}
        """Name -> operation that was asked for and not answered."""
        self.refused: list[str] = []
        """Answers that say that a request made no sense, which none of ours does."""
        self.answers = 0
        self.agents: dict[str, str] = {}
        """Name -> agent of every session that was ever asked for."""
        self.proven: dict[str, set[str]] = {agent: set() for agent in AGENTS}
        """Agent -> names of the sessions whose kickoff prompt was ever found where it keeps it."""
        self.missing: set[str] = set()
        """Names of the listed sessions that had no receipt when last compared."""

    def take(self, step: Mapping[str, Any]) -> None:
        """Take one step of `churn.py` into account."""
        name, op = str(step["name"]), str(step["op"])
        if step["step"] == "asks":
            self.unanswered[name] = op
            if op == "add":
                self.agents[name] = str(step["agent"])
            return
        if step["step"] == "refused":
            # An internal error (a machine too busy to answer in time) tells nothing about what
            # was done: the request stays unanswered.
            if step["code"] != "internal":
                self.refused.append(f"{op} {name}: {step['error']}")
            return
        del self.unanswered[name]
        self.answers += 1
        if op == "add":
            self.listed[name] = str(step["id"])
        else:
            del self.listed[name]
            self.gone.add(name)

    def compare(self, found: Mapping[str, str]) -> list[str]:
        """Return what is wrong with the sessions (name -> id) of a registry, in sentences.

        What was not answered is decided by what was found, and holds from then on.
        """
        wrong = []
        for name, session_id in self.listed.items():
            if name in found and found[name] != session_id:
                wrong.append(f"{name} was added as {session_id} and is listed as {found[name]}")
            elif name not in found and self.unanswered.get(name) != "rm":
                wrong.append(f"{name} was added, which was acknowledged, and is lost")
        for name in found:
            if name in self.gone:
                wrong.append(f"{name} was removed, which was acknowledged, and is back")
            elif name not in self.listed and self.unanswered.get(name) != "add":
                wrong.append(f"{name} was never asked for and is listed")
        self.gone |= (self.listed.keys() | self.unanswered.keys()) - found.keys()
        self.listed = dict(found)
        self.unanswered.clear()
        return wrong

    def compare_receipts(
        self, receipts: Sequence[tuple[str, str]], told: Collection[str] = ()
    ) -> list[str]:
        """Return what is wrong with the receipts (agent, text) that were found, in sentences.

        `told` are the names of those whose prompt the supervisor had called delivered by then.
        """
        found: Counter[tuple[str, str]] = Counter()
        wrong = []
        for agent, text in receipts:
            name = text.rpartition(KICKOFF)[2]
            found[agent, name] += 1
            if self.agents.get(name) != agent:
                wrong.append(f"{agent} was given a prompt that is not for it: {text}")
        wrong += [
            f"{agent} was given the prompt of {name} {count} times"
            for (agent, name), count in found.items()
            if count > 1
        ]
        self.missing = {name for name in self.listed if (self.agents.get(name), name) not in found}
        for name in self.listed.keys() - self.missing:
            self.proven[self.agents[name]].add(name)
        wrong += [
            f"{self.agents.get(name)} is said to have the prompt of {name}, and has not"
            for name in sorted(self.missing.intersection(told))
        ]
        return wrong


class Witness:
    """Talks with `churn.py` and keeps its `ledger`. Use it as a context manager."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.steps = 0
        """Steps heard so far, requests and answers alike."""
        self.views: dict[str, dict[str, Any]] = {}
        """Name -> what the supervisor tells of the session unasked; none until it does."""
        self._changed = threading.Condition()
        self._orders: socket.socket | None = None
        self._watcher: socket.socket | None = None
        self._answer = ""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="witness", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone would not wake the thread that waits in accept().
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def ask(self, op: str, seconds: float, **args: Any) -> dict[str, Any]:
        """Ask the supervisor in the machine something, once it is there; return the result."""
        answer = self._question({"op": op, "args": args}, f"`{op}`", seconds)
        if not answer["ok"]:
            raise RequestFailedError(f"`{op}` was refused: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def receipts(self, seconds: float) -> list[tuple[str, str]]:
        """Return agent and text of each kickoff prompt in what agents store, however often."""
        answer = self._question({"receipts": True}, "the question for receipts", seconds)
        return [(agent, text) for agent, text in answer["receipts"]]

    def churn(self, prefix: str, seed: int, seconds: float) -> None:
        """Let the workers loose on the listed sessions and on their own, called `prefix`-….

        They begin with the agent of which the fewest prompts were proven, or else asked for.
        """
        with self._changed:
            ledger = self.ledger
            names, asked = list(ledger.listed), Counter(ledger.agents.values())
            seen = [(len(ledger.proven[agent]), asked[agent]) for agent in AGENTS]
            first = seen.index(min(seen))
            order = {"prefix": prefix, "seed": seed, "names": names, "first": first}
            self._order(order, seconds)

    def _question(self, order: Mapping[str, Any], what: str, seconds: float) -> dict[str, Any]:
        with self._changed:
            self._answer = ""
            self._order(order, seconds)
            self._changed.wait_for(lambda: self._answer or self._orders is None, seconds)
            if not self._answer:
                raise RequestFailedError(
                    f"{what} was not answered in {seconds:g} s"
                    if self._orders
                    else f"{what} ended who took orders: see the serial log"
                )
            answer: dict[str, Any] = json.loads(self._answer)
        return answer

    def _order(self, order: Mapping[str, Any], seconds: float) -> None:
        if not self._changed.wait_for(lambda: self._orders, seconds) or self._orders is None:
            raise RequestFailedError(f"nobody in the machine took orders in {seconds:g} s")
        self._orders.sendall(json.dumps(order).encode() + b"\n")

    def wait(self, steps: int, seconds: float) -> bool:
        """Wait until that many more steps were heard; return whether they were in time."""
        with self._changed:
            goal = self.steps + steps
            return self._changed.wait_for(lambda: self.steps >= goal, seconds)

    def settle(self) -> None:
        """Return when nothing arrives any more, for use after the machine has ended."""
        quiet = 0
        while quiet < 5:
            before = self.steps
            time.sleep(0.05)
            quiet = quiet + 1 if self.steps == before else 0

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._listen, args=(peer,), daemon=True).start()

    def _listen(self, peer: socket.socket) -> None:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A connection that breaks is a machine that ended; half a line was never told.
        with contextlib.suppress(OSError), peer, peer.makefile("r") as lines:
            for line in lines:
                if not line.endswith("\n"):
                    return
                message = json.loads(line)
                with self._changed:
                    if message.get("step") == "ready":
                        self._orders = peer
                    elif message.get("step") == "watch":
                        self._watcher = peer
                    elif self._watcher is peer:
                        self._view(message)
                    elif "step" not in message:
                        self._answer = line
                    else:
                        self.ledger.take(message)
                        self.steps += 1
                        peer.sendall(b"\n")
                    self._changed.notify_all()
        with self._changed:
            if self._orders is peer:
                self._orders = None
            if self._watcher is peer:
                self._watcher, self.views = None, {}
            self._changed.notify_all()

    def _view(self, message: Mapping[str, Any]) -> None:
        if "result" in message:
            self.views = {view["name"]: view for view in message["result"]["sessions"]}
        elif message.get("event") == "session":
            self.views = {**self.views, message["session"]["name"]: message["session"]}
        elif message.get("event") == "removed":
            self.views = {k: view for k, view in self.views.items() if k != message["name"]}
