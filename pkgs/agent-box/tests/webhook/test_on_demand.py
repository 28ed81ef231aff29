"""When a receiver runs: it goes where nobody has set up a sender, and comes back for who has."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from webhook_stand import key_of, push, wait_for

from agent_box import config
from agent_box.subscriptions import receiving
from agent_box.subscriptions.place import spool_dir
from agent_box.webhook import sources
from agent_box.webhook.spool import Spool

if TYPE_CHECKING:
    import socket

IDLE = {"TEST_IDLE": "0.3"}


def ended(stand: Any, seconds: float = 10) -> int:
    assert stand.process is not None
    code: int = stand.process.wait(seconds)
    return code


def stays(stand: Any) -> bool:
    assert stand.process is not None
    try:
        stand.process.wait(1.2)
    except subprocess.TimeoutExpired:
        return True
    return False


def test_it_ends_where_nothing_is_set_up(make: Any) -> None:
    """Watches, subscriptions and plugins need no process, and lose nothing by having none."""
    stand = make(start=False)
    ident = stand.supervisor.add("work", "claude")
    peer = stand.peer(key_of(ident))
    stand.subscribe(key_of(ident), "acme/widgets")
    stand.start(**IDLE)
    assert ended(stand) == 0
    stand.source()
    stand.start(**IDLE)
    assert stand.send(push())[0] == 200
    wait_for(lambda: len(peer.events()) == 1)


def test_it_stays_for_who_has_set_up_a_sender(make: Any) -> None:
    """It stays for a sender, for deliveries in the log, and for a list that does not parse."""
    stand = make(start=False)
    stand.source()
    stand.start(**IDLE)
    assert stays(stand)
    assert stand.send(push())[0] == 200
    assert sources.remove(stand.directory, "github")
    assert stand.send(push())[0] == 404
    assert stays(stand)
    stand.settled()
    (stand.directory / "sources.json").write_text("{")
    Spool(spool_dir(stand.home)).expire(time.time(), days=-1)
    assert stays(stand)
    (stand.directory / "sources.json").write_text(json.dumps({"sources": {}}))
    assert ended(stand) == 0
    assert not (stand.directory / "sources.json").exists()


def test_it_stays_for_what_waits(make: Any) -> None:
    """Texts and sessions that it looks after keep it."""
    stand = make(start=False)
    spool = Spool(spool_dir(stand.home))
    assert spool.empty()
    with spool.transaction():
        spool.send("s-1", 1, "hello")
    assert not spool.empty()
    spool.sent([item.id for item in spool.outgoing("s-1", 10)])
    assert spool.empty()
    with spool.transaction():
        spool.want(("github", "acme/widgets"), 1, "acme/*", "", "text")
    assert not spool.empty()
    spool.starting("id", "hook-x", ("github", "acme/widgets"), 1)
    spool.started("id")
    assert not spool.empty()
    spool.abandon("id")
    assert spool.empty()
    spool.close()


def knocked(listening: socket.socket) -> bool:
    ready, _, _ = select.select([listening], [], [], 0.3)
    if ready:
        listening.accept()[0].close()
    return bool(ready)


def test_the_supervisor_wakes_it_for_who_has_set_up_a_sender(make: Any) -> None:
    """A box that boots has a receiver for those, whoever else there is."""
    stand = make(start=False)
    box = stand.box
    user = config.current_user(box)
    receiving.resume(box, user)
    assert not knocked(stand._listening)
    stand.source()
    receiving.resume(box, user)
    assert knocked(stand._listening)
    receiving.resume(msgspec.structs.replace(box, webhook=None), user)
    assert not knocked(stand._listening)
    Path(stand.socket_path).unlink()
    receiving.resume(box, user)  # whoever needs it says what is wrong


def test_setup_wakes_it(make: Any) -> None:
    """Whoever sets up a sender has a receiver from then on, without a request."""
    stand = make(start=False)
    main = "import sys; from agent_box.webhook.cli import main; sys.exit(main(['setup']))"
    done = subprocess.run([sys.executable, "-c", main], env=stand.env, check=False, timeout=30)
    assert done.returncode == 0
    assert knocked(stand._listening)


@pytest.mark.parametrize("content", ["{}", '{"sources": {}}'])
def test_a_list_of_nobody_is_no_list(tmp_path: Path, content: str) -> None:
    """What names nobody goes; what a person may have written stays."""
    path = tmp_path / "sources.json"
    assert sources.retire(tmp_path)
    path.write_text(content)
    assert sources.retire(tmp_path)
    assert not path.exists()
    for kept in ('{"sources": {"x": {}}}', '{"defaultSource": "x"}', "[]", "{"):
        path.write_text(kept)
        assert not sources.retire(tmp_path)
        assert path.read_text() == kept
