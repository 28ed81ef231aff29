"""The supervisor or the tmux server goes: what was there stays or comes back."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_box.control_client import Client


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_new_supervisor_adopts_every_pane(box, number):
    for name in ("one", "two"):
        box.ready(box.call("add", name=name, prompt="go")["session"]["id"])
    shell = box.call("add", name="sh", agent="shell")["session"]
    box.until(lambda: not any(view["promptPending"] for view in box.sessions().values()))
    before = {name: (view["pid"], view["id"]) for name, view in box.sessions().items()}
    box.kill_supervisor(number)
    box.start_supervisor()
    box.until(lambda: {view["state"] for view in box.sessions().values()} == {"running"})
    assert {n: (v["pid"], v["id"]) for n, v in box.sessions().items()} == before
    # Adopted for real: a death is noticed.
    os.kill(shell["pid"], signal.SIGKILL)
    box.until(lambda: box.view("sh")["pid"] not in (None, shell["pid"]))
    assert [len(box.launches(before[name][1])) for name in ("one", "two")] == [1, 1]


def test_a_silent_server_is_reported_and_waited_for(box):
    view = box.call("add", name="one")["session"]
    box.ready(view["id"])
    box.tmux.send_signal(signal.SIGSTOP)
    started = time.monotonic()
    with Client(box.run_dir, 3.0) as client:
        listing = client.call("ls")
    assert time.monotonic() - started < 3
    assert any("does not answer" in problem for problem in listing["problems"])
    assert listing["sessions"][0]["pid"] == view["pid"]
    with Client(box.run_dir, 3.0) as client:
        assert client.call("status")["server"]["state"] == "not-answering"
    time.sleep(0.3)
    box.tmux.send_signal(signal.SIGCONT)
    box.until(lambda: not box.call("ls")["problems"])
    assert box.view("one")["pid"] == view["pid"]
    assert len(box.launches(view["id"])) == 1


FORGETFUL_TMUX = """\
#!/bin/sh
forget=nothing
for word; do
  if [ -e "{root}/forget $word" ] && rm "{root}/forget $word"; then forget=$word; fi
done
if [ "$forget" = list-panes ]; then {tmux} "$@" | sed 's/^%.*//'; exit; fi
for word; do
  shift
  [ "$word" = "$forget" ] && word=
  set -- "$@" "$word"
done
exec {tmux} "$@"
"""


@pytest.fixture
def forgetful(make_box):
    """Return a box whose tmux leaves out what `box.forget(what)` says, once."""
    box = make_box()
    program = box.root / "forgetful-tmux"
    program.write_text(FORGETFUL_TMUX.format(root=box.root, tmux=shutil.which("tmux")))
    program.chmod(0o755)
    document = json.loads(box.config_path.read_text())
    document["programs"]["tmux"] = str(program)
    box.config_path.write_text(json.dumps(document))
    box.start()
    box.forget = lambda what: (box.root / f"forget {what}").touch()
    box.forgot = lambda: not list(box.root.glob("forget *"))
    return box


@pytest.mark.parametrize("what", ["@agent-box-id", "@agent-box-launch", "#{pane_id}", "list-panes"])
def test_a_server_that_leaves_something_out(forgetful, what):
    """On a busy machine tmux (3.7) goes on with nothing in place of a format."""
    box = forgetful
    box.forget(what)
    view = box.call("add", name="one", prompt="go")["session"]
    assert (view["state"], view["reason"], box.forgot()) == ("running", None, True)
    box.ready(view["id"])
    if what in ("@agent-box-launch", "list-panes"):
        box.forget(what)
    os.kill(view["pid"], signal.SIGKILL)
    box.until(lambda: len(box.launches(view["id"])) > 1)
    box.until(lambda: box.view("one")["state"] == "running" and box.forgot())
    # Nobody was started in place of somebody who had only not been told of.
    assert len(box.launches(view["id"])) == 2
    assert [item["name"] for item in box.call("ls")["sessions"]] == ["one"]
    assert box.tmux_run("list-windows", "-a", "-F", "#{session_name}").split() == ["one"]


def test_a_session_that_is_not_told_of_has_not_ended(forgetful):
    box = forgetful
    view = box.call("add", name="one", prompt="go")["session"]
    box.ready(view["id"])
    for _ in range(5):
        box.forget("list-panes")
        box.tmux_run("wait-for", "-S", "agent-box-event")
        box.until(box.forgot)
    time.sleep(1)
    after = box.view("one")
    assert (after["state"], after["pid"], after["lastExit"]) == ("running", view["pid"], None)
    assert len(box.launches(view["id"])) == 1


SLOW_TMUX = """\
#!/bin/sh
case "$*" in
  *new-session*)
    {tmux} "$@"; status=$?
    echo $(($(date +%s%N) + 5500000000)) >{root}/slow; exit $status ;;
  *list-panes*)
    while [ -e {root}/slow ] && [ "$(date +%s%N)" -lt "$(cat {root}/slow)" ]; do sleep 0.1; done ;;
esac
exec {tmux} "$@"
"""


def test_a_session_that_a_slow_server_does_not_show_yet_has_not_vanished(make_box):
    box = make_box()
    slow = box.root / "tmux"
    slow.write_text(SLOW_TMUX.format(tmux=shutil.which("tmux"), root=box.root))
    slow.chmod(0o755)
    document = json.loads(box.config_path.read_text())
    document["programs"]["tmux"] = str(slow)
    box.config_path.write_text(json.dumps(document))
    box.start()
    with ThreadPoolExecutor(1) as pool:
        # Its start asks tmux in vain for 5 s. Whoever asks meanwhile is answered after that.
        added = pool.submit(box.call, "add", name="one", wait=False)
        box.until((box.root / "slow").exists)
        time.sleep(2)
        box.call("ls")
        added.result()
    box.until(lambda: box.view("one")["state"] == "running" and box.view("one")["pid"])
    box.until(lambda: not box.call("ls")["problems"])
    assert len(box.launches(box.view("one")["id"])) == 1
    assert "vanished" not in box.log
    assert box.view("one")["restarts"] == 0


def test_a_new_server_gets_the_sessions_back_by_resume(box):
    views = [box.call("add", name=name, prompt="go")["session"] for name in ("one", "two")]
    for view in views:
        box.ready(view["id"])
    parked = box.call("add", name="off")["session"]
    box.call("stop", name="off")
    box.kill_tmux()
    box.until(lambda: any("not running" in text for text in box.call("ls")["problems"]))
    box.start_tmux()
    for view in views:
        assert box.ready(view["id"], 2)[1]["resumed"]
    box.until(lambda: {v["state"] for v in box.sessions().values()} == {"running", "stopped"})
    assert len(box.launches(parked["id"])) <= 1
    assert not box.call("ls")["problems"]
    # The new server's hooks are heard.
    box.tmux_run("new-session", "-d", "-s", "mine", "sleep 60")
    box.until(lambda: box.sessions().get("mine"))


def test_a_server_replaced_in_an_instant(box):
    """The old one goes and the new one is there before anybody looked."""
    view = box.call("add", name="one")["session"]
    box.ready(view["id"])
    box.supervisor.send_signal(signal.SIGSTOP)
    box.kill_tmux()
    box.start_tmux()
    box.supervisor.send_signal(signal.SIGCONT)
    box.ready(view["id"], 2)
    box.wait("one", "running")
    assert box.call("status")["server"]["pid"] == box.tmux.pid


def test_delisted_and_reused_names_while_the_supervisor_is_down(box):
    gone = box.call("add", name="gone")["session"]
    old = box.call("add", name="again")["session"]
    for view in (gone, old):
        box.ready(view["id"])
    box.kill_supervisor()
    new_id = "5b4f1a52-9d2f-4f4f-8f5a-2d3c51c9a001"
    document = box.raw()
    del document["sessions"]["gone"]
    document["sessions"]["again"] = {"agent": "claude", "boxSessionId": new_id}
    write(box, document)
    box.start_supervisor()
    assert box.ready(new_id)[0]["name"] == "again"
    box.until(lambda: list(box.sessions()) == ["again"])
    assert box.wait("again", "running")["id"] == new_id
    for view in (gone, old):
        box.until(lambda view=view: not box.traces(view["id"]))
        with pytest.raises(ProcessLookupError):
            os.kill(view["pid"], 0)


def test_a_session_renamed_while_the_supervisor_is_down(box):
    view = box.call("add", name="old", prompt="go")["session"]
    box.ready(view["id"])
    box.kill_supervisor()
    document = box.raw()
    document["sessions"]["new"] = document["sessions"].pop("old")
    write(box, document)
    box.start_supervisor()
    box.until(lambda: "new" in box.tmux_run("list-sessions", "-F", "#{session_name}"))
    assert box.view("new")["pid"] == view["pid"]
    assert len(box.launches(view["id"])) == 1


def test_the_kickoff_prompt_survives_kills_at_random_moments(make_box):
    """Delivered at most once, and never lost, whenever the power goes."""
    box = make_box()
    box.start()
    dice = random.Random(7)
    ids = {}
    for number in range(20):
        name = f"s{number}"
        box.at_start(name, "slow")
        ids[name] = box.call("add", name=name, prompt=f"task {name}", wait=False)["session"]["id"]
        time.sleep(dice.uniform(0, 0.25))
        box.kill_supervisor()
        if dice.random() < 0.6:
            box.kill_tmux()
            box.start_tmux()
        box.start_supervisor()
    for name, session_id in ids.items():
        box.until(lambda i=session_id: box.transcript(i), explain=lambda n=name: box.view(n))
    box.until(lambda: not any(view["promptPending"] for view in box.sessions().values()))
    for name, session_id in ids.items():
        told = [item.get("prompt") for item in box.transcript(session_id)]
        assert told.count(f"task {name}") == 1, (name, told)


def test_parallel_adds_and_removals_lose_nothing(box):
    with ThreadPoolExecutor(20) as pool:
        added = list(
            pool.map(lambda i: box.call("add", name=f"s{i}", agent="shell", wait=False), range(20))
        )
        assert len({answer["session"]["id"] for answer in added}) == 20
        assert set(box.sessions()) == {f"s{i}" for i in range(20)}
        jobs = [pool.submit(box.call, "rm", name=f"s{i}") for i in range(20)]
        jobs += [
            pool.submit(box.call, "add", name=f"t{i}", agent="shell", wait=False) for i in range(20)
        ]
        for job in jobs:
            job.result()
    assert set(box.sessions()) == {f"t{i}" for i in range(20)} == set(box.raw()["sessions"])
    names = lambda: set(box.tmux_run("list-sessions", "-F", "#{session_name}").split())  # noqa: E731
    box.until(lambda: names() == {f"t{i}" for i in range(20)}, explain=names)


def test_unnamed_sessions_added_at_once_get_names_of_their_own(box):
    with ThreadPoolExecutor(8) as pool:
        views = pool.map(lambda _: box.call("add", agent="shell", wait=False)["session"], range(8))
        assert len({view["name"] for view in views}) == 8


def write(box, document) -> None:
    import json

    temporary = box.registry.with_name("edited")
    temporary.write_text(json.dumps(document))
    temporary.chmod(0o600)
    temporary.replace(box.registry)
