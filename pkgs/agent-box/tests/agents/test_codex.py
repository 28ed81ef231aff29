from __future__ import annotations

import json
import time
import tomllib
from dataclasses import replace

import pytest

from agent_box.agents.base import RESUME_STEER
from agent_box.agents.codex import AGENT
from agent_box.agents.hook import ASKS, WORKING
from agent_box.agents.prompts import stamp

from .conftest import LAUNCH, Config, entry, record

PLAIN = [
    *("-c", "features.daemon_auto_start=false", "-c", "check_for_update_on_startup=false"),
    *("-c", 'notify=["agent-box-hook","codex"]'),
]
BYPASS = "--dangerously-bypass-approvals-and-sandbox"


@pytest.fixture
def ctx(ctx):
    return entry(ctx, agent="codex")


def identity(seconds, tail="75d3-90ae-7add0b1d1c65"):
    stamp_ms = f"{int(seconds * 1000):012x}"
    return f"{stamp_ms[:8]}-{stamp_ms[8:]}-{tail}"


def rollout(ctx, seconds, words, *, cwd="/home/alice/work", source="cli", new=True, tail=None):
    """Write a rollout as codex does; without words it stops before the user spoke."""
    name = identity(seconds, tail) if tail else identity(seconds)
    day = ctx.user.home / ".codex" / "sessions" / "2026" / "11" / "29"
    day.mkdir(parents=True, exist_ok=True)
    clock = time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime(seconds))
    records = [
        {"type": "session_meta", "payload": {"id": name, "cwd": cwd, "source": source}},
        {
            "type": "response_item",
            "payload": {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": f"<environment_context> {stamp(LAUNCH)}"}
                ],
            },
        },
    ]
    if words is not None and new:
        records.append(
            {
                "type": "event_msg",
                "payload": {
                    "type": "item_completed",
                    "item": {"type": "UserMessage", "content": [{"type": "text", "text": words}]},
                },
            }
        )
    elif words is not None:
        payload = {"type": "user_message", "message": words}
        records.append({"type": "event_msg", "payload": payload})
    path = day / f"rollout-{clock}-{name}.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in records))
    return name


def test_first_start(ctx):
    launch = AGENT.launch(entry(ctx, extra_args=["-i", "/f"]), "look")
    assert launch.argv == [
        "/bin/codex",
        BYPASS,
        *PLAIN,
        "-i",
        "/f",
        "--",
        f"[agent-box session {LAUNCH}] look",
    ]
    assert launch.delivers_prompt
    assert launch.env == {"AGENT_BOX_SESSION_ID": LAUNCH}


def test_without_autonomy(ctx):
    careful = entry(ctx, skip_permissions=False)
    assert AGENT.launch(careful, None).argv == ["/bin/codex", *PLAIN]
    box = replace(ctx.box, agents={"codex": Config("/bin/codex", full_access=True)})
    argv = AGENT.launch(replace(careful, box=box), None).argv
    assert argv[1:5] == ["-c", "approval_policy=on-request", "-c", "sandbox_mode=workspace-write"]
    assert BYPASS not in argv


@pytest.mark.parametrize("new", [True, False])
def test_resume_by_stamp(ctx, new):
    name = rollout(ctx, 1000, f"{stamp(LAUNCH)} look", new=new)
    rollout(ctx, 2000, "something newer by hand")
    launch = AGENT.launch(entry(ctx, extra_args=["-m", "x"]), None)
    assert launch.argv == [
        "/bin/codex",
        "resume",
        BYPASS,
        *PLAIN,
        "-m",
        "x",
        "--",
        name,
        RESUME_STEER,
    ]
    assert launch.resumes


def test_a_mention_of_the_stamp_is_not_the_stamp(ctx):
    # A sibling that printed our id (ps, the registry, a transcript) is not us.
    rollout(ctx, 1000, f"what is {stamp(LAUNCH)}?")
    assert AGENT.conversation(entry(ctx, initial_prompt="look")) is None


def test_another_directory_is_another_session(ctx):
    rollout(ctx, 1000, f"{stamp(LAUNCH)} look", cwd="/home/alice/else")
    assert AGENT.conversation(ctx) is None


@pytest.mark.parametrize("source", ["exec", {"subagent": "review"}])
def test_other_kinds_of_rollouts_are_not_ours(ctx, source):
    rollout(ctx, 1000, f"{stamp(LAUNCH)} look", source=source)
    assert AGENT.conversation(ctx) is None


def test_without_a_prompt_the_only_candidate_after_the_start_counts(ctx):
    started = record(ctx, launched=True, started_at=1000.0)
    rollout(ctx, 500, "before", tail="75d3-90ae-000000000001")
    assert AGENT.conversation(started) is None
    name = rollout(ctx, 1500, "after")
    assert AGENT.conversation(started) == name
    # Another session's first words carry its own stamp.
    other = stamp("aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee")
    rollout(ctx, 1600, f"{other} x", tail="75d3-90ae-000000000002")
    assert AGENT.conversation(started) == name
    rollout(ctx, 1700, "a sibling", tail="75d3-90ae-000000000003")
    assert AGENT.conversation(started) is None
    assert AGENT.conversation(record(started, conversation=name)) == name


def test_a_prompt_that_went_out_needs_its_stamp(ctx):
    started = record(entry(ctx, initial_prompt="look"), launched=True, started_at=1000.0)
    rollout(ctx, 1500, "by hand")
    assert AGENT.conversation(started) is None


def test_who_is_told_by_the_user_stays_told(ctx):
    (ctx.user.home / ".codex").mkdir(exist_ok=True)
    (ctx.user.home / ".codex/config.toml").write_text('notify = ["my-own"]\n')
    assert PLAIN[-1] not in AGENT.launch(ctx, None).argv


def test_never_started_means_no_conversation(ctx):
    rollout(ctx, 1500, "by hand")
    assert AGENT.conversation(ctx) is None
    assert AGENT.launch(ctx, None).argv == ["/bin/codex", BYPASS, *PLAIN]


def test_a_recorded_id_whose_rollout_is_gone_is_not_resumed(ctx):
    assert AGENT.conversation(record(ctx, conversation=identity(1000))) is None


def test_nothing_said_yet_is_no_delivery_and_is_read_again(ctx):
    name = rollout(ctx, 1000, None)
    assert AGENT.conversation(ctx) is None
    rollout(ctx, 1000, f"{stamp(LAUNCH)} look")
    assert AGENT.conversation(ctx) == name


def test_garbage_is_skipped(ctx):
    day = ctx.user.home / ".codex" / "sessions" / "2026" / "11" / "30"
    day.mkdir(parents=True)
    (day / "rollout-2026-11-30T00-00-00-not-an-id.jsonl").write_text("{}")
    (day / f"rollout-2026-11-30T00-00-00-{identity(9e8)}.jsonl").write_bytes(b"\xff\n[]\n")
    (day / f"rollout-2026-11-30T00-00-01-{identity(9e8)}.jsonl").mkdir()
    (ctx.user.home / ".codex" / "sessions" / "stray").write_text("")
    name = rollout(ctx, 1000, f"{stamp(LAUNCH)} look")
    assert AGENT.conversation(ctx) == name


def test_many_rollouts_are_cheap(ctx):
    for number in range(600):
        rollout(ctx, 10_000 + number, "x", tail=f"75d3-90ae-{number:012d}")
    AGENT.conversation(ctx)
    start = time.perf_counter()
    AGENT.conversation(ctx)
    assert time.perf_counter() - start < 0.5


def test_trust_is_appended(ctx):
    path = ctx.user.home / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text('model = "m" # mine\n')
    AGENT.prepare(ctx)
    content = path.read_text()
    assert content.startswith('model = "m" # mine\n')
    projects = tomllib.loads(content)["projects"]
    assert projects == {"/home/alice/work": {"trust_level": "trusted"}}
    AGENT.prepare(ctx)
    assert path.read_text() == content


def test_a_broken_config_stays(ctx):
    path = ctx.user.home / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text("[broken")
    AGENT.prepare(ctx)
    assert path.read_text() == "[broken"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("auth.json", '{"OPENAI_API_KEY": "k"}', True),
        ("auth.json", '{"OPENAI_API_KEY": null, "tokens": {"id_token": "t"}}', True),
        ("auth.json", '{"OPENAI_API_KEY": null, "tokens": null}', False),
        ("auth.json", "broken", False),
        ("config.toml", 'model_provider = "mock"', True),
        ("config.toml", 'model_provider = "openai"', False),
        ("config.toml", '# model_provider = "mock"', False),
    ],
)
def test_signed_in(ctx, name, content, expected):
    path = ctx.user.home / ".codex" / name
    path.parent.mkdir()
    path.write_text(content)
    assert AGENT.signed_in(ctx) is expected
    assert (AGENT.holds_prompt(ctx) is None) is expected


def remote(ctx, **facts):
    codex = Config("/bin/codex", remote_control="/bin/agent-box-codex")
    return entry(replace(ctx, box=replace(ctx.box, agents={"codex": codex})), **facts)


def test_remote_control_runs_its_pane(ctx):
    here = remote(ctx)
    launch = AGENT.launch(here, None)
    assert launch.argv == ["/bin/agent-box-codex"]
    assert (launch.delivers_prompt, launch.resumes, launch.typed) == (False, False, None)
    assert AGENT.takes_no_input(here) is not None
    # What somebody does with codex by hand in the same directory is not this session's.
    rollout(here, time.time() + 1, "by hand")
    assert AGENT.conversation(record(here, launched=True, started_at=time.time())) is None


@pytest.mark.parametrize(
    "facts", [{"initial_prompt": "the task"}, {"remote_control": False}], ids=["task", "off"]
)
def test_a_task_gets_codex_itself(ctx, facts):
    here = remote(ctx, **facts)
    launch = AGENT.launch(here, facts.get("initial_prompt"))
    assert launch.argv[0] == "/bin/codex"
    assert launch.delivers_prompt is ("initial_prompt" in facts)
    assert AGENT.takes_no_input(here) is None


def test_a_conversation_goes_on_as_one(ctx):
    seconds = time.time()
    rollout(ctx, seconds, "words")
    here = record(remote(ctx), conversation=identity(seconds), launched=True)
    assert AGENT.launch(here, None).argv[:2] == ["/bin/codex", "resume"]


@pytest.mark.parametrize(
    ("state", "asks"),
    [
        ("starting", None),
        ("connecting", None),
        ("signin", "sign-in needed: open the page that it shows and enter the code"),
        ("signed-out", "sign-in needed: attach and press Enter"),
        ("refused", "sign-in refused: attach, type login and press Enter"),
        ("trouble", None),
        ("paired", None),
    ],
)
def test_remote_control_says_when_it_needs_a_person(ctx, state, asks):
    screen = f"codex remote control: {state}\nmachine: box\n\nSign in with ChatGPT\n"
    assert AGENT.attention(remote(ctx), screen) == asks


def test_titles_tell_what_notify_does_not():
    """As codex 0.171 shows them in a terminal."""
    words = {
        "⠋ [agent-box session 3a58a35e-a99c-42db-a579-72... | alice": WORKING,
        "⣿ alice": WORKING,
        "[ ! ] Action Required | [agent-box session 3a58a35e-a99c-42db-a579-72... | alice": ASKS,
        "[ . ] Action Required | alice": ASKS,
        "[agent-box session 3a58a35e-a99c-42db-a579-72... | alice": None,
        "alice": None,
        # What its user said is in the title as well.
        "what does [ ! ] Action Required | mean": None,
        "test": None,
    }
    assert {title: AGENT.terminal.title(title) for title in words} == words
