"""A terminal in the browser belongs to the page of the box and to its own session alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import outside
from agent_box_harness.edge import Ask, Edge, with_cookie
from agent_box_harness.routes import wrong

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = [pytest.mark.limit(180), pytest.mark.renewed("module")]


def test_origins(edge: Edge) -> None:
    """Only a page of the box opens a terminal; for any other nothing is started."""
    cookie = with_cookie(edge.sign_in("alice"))
    target = "/alice/t/main/ws"
    good = {
        "do": "open",
        "as": "good",
        "target": target,
        "headers": [*cookie, ("Origin", edge.origin)],
    }
    origins = ("https://evil.test", "https://a.box.test", "https://box.test:8443", "null", "",
               "https://box.test.", "http://box.test", "https://BOX.test", None)  # fmt: skip
    steps: list[dict[str, Any]] = []
    for origin in origins:
        headers = [*cookie, *([("Origin", origin)] if origin is not None else [])]
        # What a client says about itself must not hide that it asks for an upgrade.
        headers += [("X-Agent-Box-Upgrade", "")] if origin == "null" else []
        steps.append({"do": "open", "as": str(origin), "target": target, "headers": headers})
    both = [*cookie, ("Origin", edge.origin), ("Origin", "https://evil.test")]
    steps.append({"do": "open", "as": "two", "target": target, "headers": both})
    other = with_cookie(edge.sign_in("bob"))
    steps.append({"do": "open", "as": "bob", "target": target,
                  "headers": [*other, ("Origin", edge.origin)]})  # fmt: skip
    assert [result["status"] for result in edge.steps(steps)] == [403] * len(steps)
    assert outside.processes(edge.box, "alice", "agent_box/terminal") == []
    opened, _, read, _ = edge.steps(
        [good, {"do": "type", "as": "good", "text": "echo =$((6*7))=\r"},
         {"do": "read", "as": "good", "until": "=42="}, {"do": "close", "as": "good"}]
    )  # fmt: skip
    assert opened["status"] == 101
    assert "=42=" in read["text"]


def test_terminal(edge: Edge, measured: Callable[[str, float], None]) -> None:
    """A terminal shows exactly its session or says why not, survives a reload of the edge, and
    ends with the login that opened it; the session goes on.
    """
    box = edge.box
    box.ctl("alice", "add two --agent shell").check("add two")
    box.ctl("alice", "stop two").check("stop two")
    cookie = with_cookie(edge.sign_in("alice"))

    def opening(name: str) -> dict[str, Any]:
        return {"do": "open", "as": name, "target": f"/alice/t/{name}/ws",
                "headers": [*cookie, ("Origin", edge.origin)]}  # fmt: skip

    def reading(name: str, until: str | None) -> dict[str, Any]:
        return {"do": "read", "as": name, "until": until, "seconds": box.machine.scaled(20)}

    steps = [
        opening("mai"), reading("mai", "look again"),
        opening("two"), reading("two", "start it"),
        opening("main"), {"do": "type", "as": "main", "text": "echo =$((1+1))=\r"},
        reading("main", "=2="),
        {"do": "run", "command": "systemctl reload caddy.service"},
        {"do": "type", "as": "main", "text": "echo =$((2+2))=\r"}, reading("main", "=4="),
        {"do": "run", "command": "agent-box-gate revoke --user alice"}, reading("main", None),
    ]  # fmt: skip
    found = edge.steps(steps, timeout=120)
    assert "There is no session mai. There are: main, two." in found[1]["text"]
    assert not found[1]["closed"]
    assert "two is stopped." in found[3]["text"]
    assert not found[3]["closed"]
    assert "=2=" in found[6]["text"]
    assert found[7]["rc"] == 0, found[7]
    measured("reload of the edge", found[7]["seconds"])
    assert "=4=" in found[9]["text"]
    assert "Your login has ended" in found[11]["text"]
    assert found[11]["closed"]
    box.wait_for("no terminal", lambda: not outside.processes(box, "alice", "tmux .* attach"))
    assert outside.processes(box, "alice", "agent_box/terminal") == []
    assert box.session("alice", "main")["state"] == "running"
    box.ctl("alice", "rm two").check("rm two")


def test_vanished_browsers(edge: Edge, measured: Callable[[str, float], None]) -> None:
    """200 browsers that go away without a word leave no process behind, and the box usable."""
    box, count = edge.box, 200
    headers = [*with_cookie(edge.sign_in("bob")), ("Origin", edge.origin)]
    opening: list[dict[str, Any]] = [
        {"do": "open", "as": str(number), "target": "/bob/t/main/ws", "headers": headers}
        for number in range(count)
    ]
    # The client never answers a ping, as one whose network is gone.
    memory = "systemctl show --value --property=MemoryCurrent agent-box-terminal-bob.service"
    steps: list[dict[str, Any]] = [
        *opening,
        {"do": "run", "command": "pgrep -cf 'tmux .*[a]ttach'"},
        {"do": "run", "command": memory},
        {"do": "run", "command": "n=0; while pgrep -f '[a]gent_box/terminal' >/dev/null "
                                 "&& [ $n -lt 450 ]; do sleep 0.1; n=$((n+1)); done"},
        # while the connections still stand, as those of a vanished network do
        {"do": "run", "command": "pgrep -cf '[a]gent_box/terminal'"},
    ]  # fmt: skip
    found = edge.steps(steps, timeout=150)
    assert {result["status"] for result in found[:count]} == {101}
    assert int(found[count]["output"]) > count / 2
    if found[count + 1]["output"].strip().isdigit():
        measured("memory of 200 terminals, MiB", int(found[count + 1]["output"]) / 2**20)
    measured("until nothing was left of 200 vanished browsers", found[count + 2]["seconds"])
    assert found[count + 3]["output"].strip() == "0"
    assert outside.processes(box, "bob", "tmux .* attach|agent_box/terminal") == []
    ask = {"do": "open", "as": "x", "target": "/bob/t/main/ws", "headers": headers}
    assert edge.steps([ask])[0]["status"] == 101


def test_kept_page(edge: Edge) -> None:
    """Browsers keep the large page of terminals, and get it anew only when it has changed; whoever
    is not signed in any more gets none.
    """
    cookie = with_cookie(edge.sign_in("alice"))
    (first,) = edge.ask([Ask("/alice/t/main/", headers=cookie)])
    tag = ("If-None-Match", first.one("etag"))
    assert len(first.body) > 100_000
    assert first.one("cache-control") == "private, no-cache"
    asks = {
        Ask("/alice/t/main/", headers=(*cookie, tag)): 304,
        Ask("/alice/t/main/", headers=(*cookie, ("If-None-Match", '"other"'))): 200,
        Ask("/alice/t/main/", headers=(tag,)): 401,
        Ask("/bob/t/main/", headers=(*cookie, tag)): 403,
        Ask("/alice/t/main/token", headers=(*cookie, tag)): 200,
    }
    answers = edge.ask(asks)
    assert wrong(asks, answers) == []
    assert answers[0].body == ""
    for name in ("etag", "content-security-policy", "cache-control"):
        assert answers[0].one(name) == first.one(name)
    assert answers[-1].all("etag") == []
