"""`agent-box-webhook` as agents type it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from webhook_stand import issue, key_of, push, wait_for

from agent_box.subscriptions import actions
from agent_box.subscriptions.place import DISPATCH

MAIN = "import sys; from agent_box.webhook.cli import main; sys.exit(main())"


class Cli:
    def __init__(self, stand: Any, **env: str) -> None:
        self.stand = stand
        self.env = {**stand.env, **env}

    def run(self, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", MAIN, *args],
            env=self.env, input=stdin, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip

    def json(self, *args: str) -> Any:
        done = self.run(*args, "--json")
        assert done.returncode == 0, done
        return json.loads(done.stdout)


@pytest.fixture
def cli(make: Any) -> Cli:
    stand = make()
    ident = stand.supervisor.add("work")
    return Cli(stand, LOCAL_WEBHOOK_SESSION=key_of(ident), LOCAL_WEBHOOK_SELF="boxbot")


def test_set_up(cli: Cli) -> None:
    """From nothing to a source that accepts, without a restart."""
    assert cli.stand.send(push()) == (404, "unknown source")
    text = cli.run("setup").stdout
    (secret,) = (line.split()[-1] for line in text.splitlines() if line.startswith("Secret:"))
    assert len(secret) == 32
    assert f"/{cli.stand.user}/webhook/github" in text
    assert "events[]=issues" in text
    file = cli.stand.directory / "github.secret"
    assert file.read_text() == secret
    assert file.stat().st_mode & 0o777 == 0o600
    assert cli.stand.send(push(), secret=secret) == (200, "ok")
    assert cli.json("setup")["secret"] == secret
    fresh = cli.json("setup", "--rotate")["secret"]
    assert cli.stand.send(push(2), secret=secret)[0] == 200
    assert cli.stand.send(push(3), secret=fresh)[0] == 200
    assert cli.stand.send(push(4), secret="x" * 32)[0] == 401
    assert cli.run("setup", "../x").returncode == 2
    given = cli.run("setup", "stripe", "--secret-stdin", stdin="whsec_0123456789abcdef\n")
    assert "whsec_0123456789abcdef" in given.stdout
    assert "stripe-signature" in given.stdout
    assert "sources:  github, stripe" in cli.run("url").stdout
    assert cli.run("rm", "stripe").returncode == 0
    assert not (cli.stand.directory / "stripe.secret").exists()
    assert cli.run("rm", "stripe").returncode == 3
    (cli.stand.directory / "sources.json").write_text("{")
    assert cli.run("setup").returncode == 4
    assert (cli.stand.directory / "sources.json").read_text() == "{"


def test_subscribe_and_ls(cli: Cli) -> None:
    done = cli.run("subscribe", "acme/widgets", "--note", " PR 42 ")
    assert "subscribed to github:acme/widgets; expires 1h" in done.stdout
    assert "renewed" in cli.run("subscribe", "ACME/widgets", "--ttl", "3").stdout
    listed = cli.json("ls")
    (row,) = listed["topics"]
    assert (row["topic"], row["note"], row["ttlHours"]) == ("github:acme/widgets", "PR 42", 3)
    assert row["exclude"] == actions.NOISE
    assert listed["filterState"] == "ok"
    cli.run("subscribe", "acme/widgets", "--exclude", "{}", "--ignore-sender", "a,b")
    (row,) = cli.json("ls")["topics"]
    assert "exclude" not in row
    assert row["ignoreSenders"] == ["a", "b"]
    rule = '{"path": "action", "in": ["opened"]}'
    watch = cli.run("subscribe", "acme/*", "--deliver-to", "SUBAGENT", "--include", rule)
    assert "pinned (never expires); each event starts a fresh session" in watch.stdout
    assert "github:acme/*" in cli.run("ls").stdout.partition("standing watches")[2]
    assert "dispatch" in cli.json("ls", "--session", "work")
    assert "unsubscribed from" in cli.run("unsubscribe", "acme/widgets").stdout
    assert "not subscribed to" in cli.run("unsubscribe", "acme/widgets").stdout
    assert cli.json("ls")["topics"] == []
    assert cli.stand.read(DISPATCH).entries[0].include == json.loads(rule)


@pytest.mark.parametrize(
    "words",
    [
        ("bogus",), ("subscribe",), ("subscribe", "a/b", "c"), ("subscribe", "*"),
        ("subscribe", "github:*"), ("subscribe", "a/b", "--ttl", "-1"),
        ("subscribe", "a/b", "--ttl", "nan"), ("subscribe", "a/b", "--deliver-to", "x"),
        ("subscribe", "a/b", "--include", "{"), ("subscribe", "a/b", "--include", '{"path": 1}'),
        ("subscribe", "a/b", "--include", '{"any": [{"path": "a", "contains": [""]}]}'),
        ("emit",), ("log", "x"), (),
    ],
)  # fmt: skip
def test_usage(cli: Cli, words: tuple[str, ...]) -> None:
    done = cli.run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(("usage:", "agent-box-webhook:"))


def test_who_is_meant(cli: Cli) -> None:
    """Outside of a session one has to be named; the mistakes say the remedy."""
    del cli.env["LOCAL_WEBHOOK_SESSION"]
    assert "--session NAME" in cli.run("subscribe", "a/b").stderr
    assert cli.run("subscribe", "a/b", "--session", "work").returncode == 0
    assert cli.run("subscribe", "a/b", "--session", "nobody").returncode == 3
    assert cli.run("subscribe", "a/b", "--deliver-to", "subagent").returncode == 0
    document = json.loads(cli.stand.config.read_text())
    del document["webhook"]
    cli.stand.config.write_text(json.dumps(document))
    done = cli.run("status")
    assert (done.returncode, "no endpoint" in done.stderr) == (4, True)


def test_self_is_found_out_when_needed(cli: Cli) -> None:
    """Without an identity `@self` says so; with one it becomes a rule that spares runs."""
    bin_dir = cli.stand.root / "bin"
    bin_dir.mkdir()
    gh = bin_dir / "gh"
    gh.write_text("#!/bin/sh\nexit 1\n")
    gh.chmod(0o755)
    cli.env["PATH"] = f"{bin_dir}:{cli.env['PATH']}"
    del cli.env["LOCAL_WEBHOOK_SELF"]
    failed = cli.run("subscribe", "a/b", "--ignore-sender", "@self")
    assert (failed.returncode, "self --refresh" in failed.stderr) == (2, True)
    assert cli.run("self").returncode == 1
    gh.write_text("#!/bin/sh\necho boxbot\n")
    assert cli.run("self").returncode == 1  # not asked again within the hour
    assert cli.run("self", "--refresh").stdout == "boxbot\n"
    assert "LOCAL_WEBHOOK_SELF=boxbot" in (cli.stand.directory / "self.env").read_text()
    assert cli.run("subscribe", "a/b", "--ignore-sender", "@self").returncode == 0
    (entry,) = cli.stand.read(cli.env["LOCAL_WEBHOOK_SESSION"]).entries
    assert entry.ignore == []
    assert entry.exclude["any"][-1]["all"][0] == {"path": "sender.login", "in": ["boxbot"]}
    (row,) = cli.json("ls")["topics"]
    assert row["ignoreSenders"] == ["boxbot"]


def test_deliveries(cli: Cli) -> None:
    """The log tells what became of a delivery; one of it can go out again."""
    cli.stand.source()
    assert cli.run("log").returncode in (0, 3)
    cli.run("subscribe", "acme/widgets", "--note", "why")
    cli.stand.send(issue(1), "issues")
    cli.stand.send(issue(1), "issues")
    cli.stand.send(push(1, "acme/gadgets"))
    wait_for(lambda: len(cli.stand.supervisor.told()) == 1)
    cli.stand.settled()
    text = cli.run("log").stdout
    assert "github:acme/widgets  issues  told work (+1 copies)" in text
    assert "github:acme/gadgets  push  nobody listens" in text
    assert len(cli.json("log", "--key", "ACME/gadgets")) == 1
    assert cli.json("log", "1")["payload"]["issue"]["number"] == 1
    assert cli.run("log", "99").returncode == 3
    assert "goes out again as 3" in cli.run("redeliver", "1").stdout
    wait_for(lambda: len(cli.stand.supervisor.told()) == 2)
    assert cli.run("redeliver", "99").returncode == 3
    assert "told work" in cli.run("test", "--key", "acme/widgets").stdout
    assert "nobody listens" in cli.run("test").stdout
    assert cli.run("test", "nothing").returncode == 3


@pytest.mark.parametrize("scheme", ["hmac-sha256-hex", "hmac-sha256-base64", "stripe", "slack",
                                    "standard-webhooks", "token"])  # fmt: skip
def test_emit(cli: Cli, scheme: str) -> None:
    """Whatever the scheme of a source, the box can speak in its name."""
    cli.stand.source("disk", scheme=scheme, keyPath="disk")
    for _ in range(2):
        done = cli.run("emit", "disk", '{"disk": "/var"}', "--event", "full")
        assert (done.returncode, "delivered disk event" in done.stdout) == (0, True), done
    assert cli.run("emit", "disk", stdin='{"disk": "/"}').returncode == 0
    rows = cli.json("log")
    assert [(row["event"], row["key"]) for row in rows] == [("full", "/var")] * 2 + [("", "/")]
    assert cli.run("emit", "disk", "{").returncode == 2
    assert cli.run("emit", "nothing", "{}").returncode == 3
    cli.stand.kill()
    cli.stand.close()


def test_status(cli: Cli) -> None:
    """Everything that may be wrong is said, on stderr, beside clean JSON."""
    cli.stand.source()
    status = cli.json("status")
    assert status["sources"] == {"github": {"hasSecret": True, "scheme": "hmac-sha256-hex"}}
    assert status["receiver"]["spawn"] is True
    assert status["dispatch"]["hookSessions"] == {"live": 0, "max": 4, "atCapacity": False}
    assert status["dispatch"]["lastRefusal"] is None
    assert status["running"]["unrouted"] == 0
    assert cli.run("status").stderr == ""
    cli.stand.supervisor.add("main", agent="claude")
    assert "no plugin runs in main" in cli.run("status").stderr
    for number in range(4):
        cli.stand.supervisor.add(f"hook-{number}", agent="codex")
    cli.run("subscribe", "acme/*", "--deliver-to", "subagent")
    done = cli.run("status", "--json")
    assert "agent-box-session rm NAME" in done.stderr
    assert json.loads(done.stdout)["dispatch"]["warning"].startswith(
        "4 hook-* sessions are running"
    )
    assert "inert" in cli.run("ls").stderr


def test_broken_files_are_not_written_over(cli: Cli) -> None:
    """A list of watches that does not parse is kept aside, and never silently emptied."""
    path = cli.stand.directory / "filter.dispatch.json"
    path.write_text('{"topics": [broken')
    assert cli.json("ls")["dispatch"]["filterState"] == "invalid"
    assert cli.run("unsubscribe", "a/b", "--deliver-to", "subagent").returncode == 4
    assert path.read_text() == '{"topics": [broken'
    assert cli.run("subscribe", "a/b", "--deliver-to", "subagent").returncode == 0
    (kept,) = cli.stand.directory.glob("filter.dispatch.json.corrupt-*")
    assert kept.read_text() == '{"topics": [broken'


def test_most_verbs_import_no_network_and_no_database() -> None:
    """Agents run the command again and again; `ls` and `subscribe` need neither."""
    code = (
        "import sys; from agent_box.webhook.cli import commands, context, parser;"
        "heavy = ('http.client', 'sqlite3', 'subprocess', 'asyncio');"
        "print([name for name in heavy if name in sys.modules])"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "[]"
