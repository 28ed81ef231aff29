from __future__ import annotations

import json
import stat
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_box.agents.base import RESUME_STEER
from agent_box.agents.claude import AGENT, remote_control_name

from .conftest import LAUNCH, entry, make_context, record

OTHER = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
THIRD = "99999999-bbbb-4ccc-8ddd-eeeeeeeeeeee"
WORDS = {"type": "user", "message": {"role": "user", "content": "hello"}}
COMMAND = {
    "type": "user",
    "message": {"role": "user", "content": "<command-name>/login</command-name>"},
}


def transcript(ctx, identity, *records, project="-home-alice-work"):
    path = ctx.user.home / ".claude" / "projects" / project / f"{identity}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"type": "mode", "mode": "normal"}, *(records or [WORDS])]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def live(ctx, launch, text):
    path = ctx.user.home / ".local" / "state" / "agent-box" / "live" / launch
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def state(ctx):
    return json.loads((ctx.user.home / ".claude.json").read_text())


def settings(ctx):
    return json.loads((ctx.user.home / ".claude" / "settings.json").read_text())


def test_first_start_in_order(ctx):
    launch = AGENT.launch(entry(ctx, extra_args=["--model", "x"]), "do it now")
    hook = launch.argv[launch.argv.index("--settings") + 1]
    assert launch.argv == [
        "/bin/claude",
        "--dangerously-skip-permissions",
        "--remote-control",
        "alice-main@nixos",
        "--settings",
        hook,
        "--session-id",
        LAUNCH,
        "--model",
        "x",
        "--",
        "do it now",
    ]
    hooks = json.loads(hook)["hooks"]
    assert {"SessionStart", "UserPromptSubmit", "Stop", "Notification"} <= hooks.keys()
    command = hooks["SessionStart"][0]["hooks"][0]
    assert command == {"type": "command", "command": "agent-box-hook", "timeout": 10}
    assert launch.delivers_prompt
    assert not launch.resumes
    assert launch.env == {"DISABLE_AUTOUPDATER": "1", "AGENT_BOX_SESSION_ID": LAUNCH}
    assert launch.launch_id == LAUNCH


def test_switches_can_be_off(ctx):
    quiet = entry(ctx, skip_permissions=False, remote_control=False)
    argv = AGENT.launch(quiet, None).argv
    assert "--dangerously-skip-permissions" not in argv
    assert "--remote-control" not in argv
    assert "--" not in argv


def test_a_variadic_option_does_not_swallow_the_prompt(ctx):
    argv = AGENT.launch(entry(ctx, extra_args=["--add-dir", "/d"]), "a task").argv
    assert argv[-4:] == ["--add-dir", "/d", "--", "a task"]


@pytest.mark.parametrize("word", ["doctor", "update", "setup-token"])
def test_a_prompt_is_never_a_sub_command(ctx, word):
    assert AGENT.launch(ctx, word).argv[-1] == word + " "


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_prompts_arrive_as_they_are(prompt):
    from pathlib import Path

    argv = AGENT.launch(make_context(Path("/nonexistent")), prompt).argv
    assert argv[-2] == "--"
    assert argv[-1].rstrip(" ") == prompt.rstrip(" ")


def test_resume_by_recorded_id(ctx):
    transcript(ctx, LAUNCH)
    launch = AGENT.launch(ctx, None)
    assert launch.argv[-4:] == ["--resume", LAUNCH, "--", RESUME_STEER]
    assert launch.resumes
    assert not launch.delivers_prompt
    own = AGENT.launch(entry(ctx, resume_prompt="carry on, then"), None)
    assert own.argv[-1] == "carry on, then"
    silent = AGENT.launch(entry(ctx, resume_prompt=""), None)
    assert silent.argv[-2:] == ["--resume", LAUNCH]


def test_without_a_transcript_nothing_claims_to_be_a_resume(ctx):
    again = record(ctx, launched=True, started_at=1.0)
    launch = AGENT.launch(again, None)
    assert launch.argv[-2:] == ["--session-id", LAUNCH]
    assert not launch.resumes
    assert AGENT.conversation(again) is None


def test_a_transcript_of_a_sibling_is_not_ours(ctx):
    transcript(ctx, OTHER)
    assert AGENT.conversation(ctx) is None


def test_a_transcript_is_found_after_a_change_of_directory(ctx):
    transcript(ctx, LAUNCH, project="-home-alice-elsewhere")
    assert AGENT.conversation(ctx) == LAUNCH


def test_rotation_is_followed_twice(ctx):
    transcript(ctx, LAUNCH)
    transcript(ctx, OTHER)
    live(ctx, LAUNCH, OTHER + "\n")
    launch = AGENT.launch(ctx, None)
    assert launch.argv[launch.argv.index("--resume") + 1] == OTHER
    assert launch.launch_id == launch.env["AGENT_BOX_SESSION_ID"] == OTHER
    live(ctx, OTHER, THIRD)
    assert AGENT.conversation(ctx) == OTHER  # the third has no transcript yet
    transcript(ctx, THIRD)
    assert AGENT.conversation(record(ctx, launch_id=OTHER)) == THIRD


@pytest.mark.parametrize("text", ["", "../../etc/passwd", "x" * 5000, LAUNCH, "é"])
def test_a_live_record_that_makes_no_sense_is_ignored(ctx, text):
    transcript(ctx, LAUNCH)
    live(ctx, LAUNCH, text)
    assert AGENT.conversation(ctx) == LAUNCH


def test_a_launch_id_that_is_no_uuid_never_reaches_a_path(ctx):
    (ctx.user.home / ".claude" / "projects" / "p").mkdir(parents=True)
    (ctx.user.home / "secret.jsonl").write_text("{}")
    assert AGENT.conversation(record(ctx, launch_id="../../../secret")) is None


def test_commands_alone_are_no_delivery(ctx):
    # Signing in with /login writes a transcript under our id: no prompt has arrived by that.
    transcript(ctx, LAUNCH, COMMAND)
    assert AGENT.conversation(ctx) is None
    launch = AGENT.launch(ctx, "the task")
    assert launch.argv[-4:] == ["--resume", LAUNCH, "--", "the task"]
    assert launch.delivers_prompt
    assert not launch.resumes
    assert AGENT.launch(ctx, None).argv[-2:] == ["--resume", LAUNCH]
    transcript(ctx, LAUNCH, COMMAND, WORDS)
    assert AGENT.conversation(ctx) == LAUNCH


def test_the_first_line_alone_is_no_delivery(ctx):
    # What a power cut may leave of a transcript that had just begun.
    path = transcript(ctx, LAUNCH)
    whole = path.read_bytes()
    for length in (whole.index(b"\n") + 1, whole.index(b"\n") + 20):
        path.write_bytes(whole[:length])
        assert AGENT.conversation(ctx) is None
        # claude neither resumes it nor begins it.
        AGENT.prepare(ctx)
        launch = AGENT.launch(ctx, "the task")
        assert launch.argv[-4:] == ["--session-id", LAUNCH, "--", "the task"]
        assert launch.delivers_prompt
    path.write_bytes(whole)
    AGENT.prepare(ctx)
    assert AGENT.conversation(ctx) == LAUNCH


def test_after_clear_the_new_conversation_is_resumed_in_silence(ctx):
    transcript(ctx, LAUNCH)
    transcript(ctx, OTHER, COMMAND)
    live(ctx, LAUNCH, OTHER)
    assert AGENT.conversation(ctx) == OTHER
    assert AGENT.launch(ctx, None).argv[-2:] == ["--resume", OTHER]


def test_first_run_state(ctx):
    AGENT.prepare(ctx)
    assert state(ctx) == {
        "hasCompletedOnboarding": True,
        "projects": {
            "/home/alice/work": {
                "hasCompletedProjectOnboarding": True,
                "hasTrustDialogAccepted": True,
            }
        },
    }
    assert settings(ctx) == {"skipDangerousModePermissionPrompt": True, "theme": "dark"}
    for path in (ctx.user.home / ".claude.json", ctx.user.home / ".claude" / "settings.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        before = path.stat().st_mtime_ns
        AGENT.prepare(ctx)
        assert path.stat().st_mtime_ns == before


def test_first_run_state_keeps_what_is_there(ctx):
    path = ctx.user.home / ".claude.json"
    path.write_text('{"projects": {"/home/alice/work": {"history": [1]}}, "userID": "u"}')
    AGENT.prepare(ctx)
    assert state(ctx)["userID"] == "u"
    assert state(ctx)["projects"]["/home/alice/work"]["history"] == [1]


def test_a_broken_state_file_stays_and_the_settings_are_still_seeded(ctx):
    path = ctx.user.home / ".claude.json"
    path.write_text("{ not json")
    AGENT.prepare(ctx)
    assert path.read_text() == "{ not json"
    assert settings(ctx)["theme"] == "dark"


def test_the_plugin_for_webhooks(ctx, tmp_path):
    plugin = tmp_path / "plugin"
    ctx = replace(ctx, box=replace(ctx.box, plugin=str(plugin)))
    remote = ctx.user.home / ".claude" / "remote-settings.json"
    remote.parent.mkdir()
    remote.write_text("{}")
    AGENT.prepare(ctx)
    assert "--channels" not in AGENT.launch(ctx, None).argv
    assert "enabledPlugins" not in settings(ctx)
    assert remote.exists()
    plugin.mkdir()
    AGENT.prepare(ctx)
    argv = AGENT.launch(ctx, None).argv
    assert argv[argv.index("--channels") + 1] == "plugin:local-webhook@local-channels"
    assert argv[argv.index("--channels") + 2].startswith("--")
    found = settings(ctx)
    source = {"source": {"source": "directory", "path": str(plugin)}}
    assert found["extraKnownMarketplaces"] == {"local-channels": source}
    assert found["enabledPlugins"] == {"local-webhook@local-channels": True}
    assert not remote.exists()


def test_added_directories_are_trusted_too(ctx):
    AGENT.prepare(entry(ctx, extra_args=["--add-dir", "/d/a", "b", "--add-dir=/c", "--model", "x"]))
    assert set(state(ctx)["projects"]) == {"/home/alice/work", "/d/a", "/home/alice/work/b", "/c"}


def test_a_key_of_the_env_file_is_approved_unless_refused_before(ctx):
    key = "sk-ant-" + "0" * 30 + "tail"
    with_key = replace(ctx, env={"ANTHROPIC_API_KEY": key})
    AGENT.prepare(with_key)
    assert state(ctx)["customApiKeyResponses"] == {"approved": [key[-20:]]}
    assert AGENT.signed_in(with_key)
    refused = {"customApiKeyResponses": {"rejected": [key[-20:]]}}
    (ctx.user.home / ".claude.json").write_text(json.dumps(refused))
    AGENT.prepare(with_key)
    assert state(ctx)["customApiKeyResponses"] == refused["customApiKeyResponses"]
    assert AGENT.signed_in(with_key) is False


@pytest.mark.parametrize(
    "env",
    [
        {"ANTHROPIC_API_KEY": "k"},
        {"ANTHROPIC_AUTH_TOKEN": "t"},
        {"CLAUDE_CODE_OAUTH_TOKEN": "t"},
        {"CLAUDE_CODE_USE_BEDROCK": "1"},
        {"CLAUDE_CODE_USE_VERTEX": "true"},
    ],
)
def test_signed_in_by_environment(ctx, env):
    assert AGENT.signed_in(replace(ctx, env=env))
    assert AGENT.holds_prompt(replace(ctx, env=env)) is None


@pytest.mark.parametrize(
    ("name", "document"),
    [
        (".credentials.json", {"claudeAiOauth": {"accessToken": "t"}}),
        ("settings.json", {"apiKeyHelper": "/bin/key"}),
        ("settings.json", {"env": {"ANTHROPIC_AUTH_TOKEN": "t"}}),
    ],
)
def test_signed_in_by_file(ctx, name, document):
    path = ctx.user.home / ".claude" / name
    path.parent.mkdir()
    path.write_text(json.dumps(document))
    assert AGENT.signed_in(ctx)


@pytest.mark.parametrize("env", [{}, {"ANTHROPIC_API_KEY": ""}, {"CLAUDE_CODE_USE_BEDROCK": "0"}])
def test_signed_out_holds_the_prompt(ctx, env):
    signed_out = replace(ctx, env=env)
    assert AGENT.signed_in(signed_out) is False
    assert AGENT.holds_prompt(signed_out)


def test_remote_control_names(ctx):
    assert remote_control_name(entry(ctx, remote_control_name="my box")) == "my box"
    assert remote_control_name(entry(ctx, remote_control_name="a\r\nb\n")) == "a b"
    assert remote_control_name(entry(ctx, remote_control_name="--x")) == "x"
    unnamed = replace(ctx, box=replace(ctx.box, host_label=None))
    assert remote_control_name(unnamed).startswith("alice-main@")


def test_another_configuration_directory(ctx, tmp_path):
    moved = replace(ctx, env={"CLAUDE_CONFIG_DIR": str(tmp_path / "c")})
    AGENT.prepare(moved)
    assert (tmp_path / "c" / ".claude.json").exists()
    assert not (ctx.user.home / ".claude.json").exists()
