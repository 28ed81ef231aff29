"""Starting one session, learning how its run ended, and ending it.

Every method expects the session's lock to be held by the caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import select
import signal
import time
import uuid
from typing import TYPE_CHECKING, Any

from agent_box import agents, envfile, locking
from agent_box.agents.base import Context
from agent_box.errors import AgentBoxError
from agent_box.registry import is_uuid
from agent_box.subscriptions import place
from agent_box.supervisor import policy, specs
from agent_box.supervisor.reconcile import Phase
from agent_box.supervisor.record import KEPT_EXITS, Exit
from agent_box.tmux import TmuxDownError, TmuxError, TmuxSilentError

if TYPE_CHECKING:
    from pathlib import Path

    from agent_box.agents.base import Agent, Launch
    from agent_box.config import Box, User
    from agent_box.panes import Pane
    from agent_box.supervisor.cgroups import Groups
    from agent_box.supervisor.model import Session
    from agent_box.supervisor.record import Record, Records
    from agent_box.tmux import Tmux

log = logging.getLogger(__name__)

GRACE = 3.0
"""Seconds that a program gets to leave by itself before it is killed."""

REAP = 0.2
"""Seconds after the end of a session when nothing of it may be left, not even a zombie."""

HISTORY = 20000
"""Lines of scrollback kept of an ended run."""


class Lifecycle:
    """What can be done to a session of one user."""

    def __init__(self, box: Box, user: User, tmux: Tmux, records: Records) -> None:
        self.box = box
        self.user = user
        self.tmux = tmux
        self.records = records
        self.groups: Groups | None = None
        self.launch_dir = user.runtime_dir / "launch"
        self.notify_path = user.runtime_dir / "notify.sock"

    def context(self, session: Session, env: dict[str, str] | None = None) -> Context:
        """Return what an agent's adapter gets to see."""
        if env is None:
            env = self._env(session)
        return Context(
            box=self.box,
            user=self.user,
            name=session.name,
            id=session.id,
            entry=session.entry,
            record=session.record,
            env=env,
        )

    def _env_files(self, session: Session) -> list[Path]:
        """Return the files of the environment, what counts most last."""
        return [self.user.env_path, self.user.session_env_path(session.id)]

    def _env(self, session: Session) -> dict[str, str]:
        env: dict[str, str] = {}
        for path in self._env_files(session):
            try:
                env |= envfile.read(path)
            except (AgentBoxError, OSError, ValueError) as error:
                log.warning("%s is not loaded: %s", path, error)
        return env

    async def start(self, session: Session, pane: Pane | None) -> dict[str, Pane] | None:
        """Start the session, in `pane` if that holds an ended run of it.

        Returns the panes that tmux has then; None if nothing was started, as its phase tells.
        """
        now = time.time()
        again = session.record.launched
        try:
            agent = self._agent(session)
            launch = await asyncio.to_thread(self._plan, session, agent)
            launch_key = uuid.uuid4().hex[:12]
            group = None
            if self.groups is not None:
                group, session.applied = self.groups.create(session.id)
                session.oom_kills = self.groups.oom_kills(session.id)
            spec = self._write_spec(session, launch, launch_key, group)
        except AgentBoxError as error:
            log.error("session %s cannot start: %s", session.name, error)
            session.enter(Phase.FAILED, now, str(error))
            return None
        except Exception as error:  # a full disk, an adapter's bug: it may pass, at a slow pace
            log.exception("session %s cannot start now", session.name)
            self.postpone(
                session, f"it cannot be started now ({specs.why(error, self.user.runtime_dir)})"
            )
            return None
        argv = [self.box.programs.launch, str(spec)]
        session.enter(Phase.STARTING, now)
        cwd = session.entry.working_directory
        if not os.path.isdir(cwd):  # noqa: ASYNC240, PTH112  (tmux would go elsewhere silently)
            cwd = "/"
        try:
            if pane is not None:
                panes = await self.tmux.respawn(pane, cwd, launch_key, argv)
            else:
                panes = await self.tmux.start(session.name, cwd, session.id, launch_key, argv)
        except (TmuxDownError, TmuxSilentError):
            # Looked at again when the server answers: the request may have got through.
            session.enter(Phase.IDLE, now)
            raise
        except TmuxError as error:
            log.warning("session %s: tmux: %s", session.name, error)
            self.postpone(session, f"tmux refused to start it ({error})")
            return None
        session.record.started_at = now
        session.record.launched = True
        session.record.restarts += 1 if again else 0
        await asyncio.to_thread(self.records.save, session.record, durable=False)
        log.info(
            "session %s: %s %s%s",
            session.name,
            "resumed" if launch.resumes else "started",
            session.entry.agent,
            f" ({launch.note})" if launch.note else "",
        )
        return panes

    def postpone(self, session: Session, reason: str) -> None:
        """Try a start that did not come about again, later each time."""
        session.failures += 1
        seconds = max(1.0, policy.delay(session.failures))
        session.enter(Phase.CRASHED, time.time(), reason)
        loop = asyncio.get_running_loop()
        session.next_retry = loop.time() + seconds
        session.next_retry_at = time.time() + seconds

    def _agent(self, session: Session) -> Agent:
        name = session.entry.agent
        if not self.box.knows_agent(name):
            raise AgentBoxError(
                f"agent '{name}' is not installed on this box "
                f"(installed: {', '.join(self.box.agent_names())})"
            )
        try:
            return agents.get(name)
        except KeyError:
            raise AgentBoxError(f"agent '{name}' is not supported by this runtime") from None

    def _plan(self, session: Session, agent: Agent) -> Launch:
        """Ask the adapter how to start; runs in a thread, since it reads and writes files."""
        ctx = self.context(session)
        agent.prepare(ctx)
        record = session.record
        self.note_delivery(session, agent, ctx)
        prompt = None
        if session.prompt_pending:
            held = agent.holds_prompt(ctx)
            if held is None:
                prompt = session.entry.initial_prompt
            else:
                log.info("session %s: the kickoff prompt is held: %s", session.name, held)
        launch = agent.launch(ctx, prompt)
        session.typed = launch.typed
        moved = launch.launch_id is not None and launch.launch_id != record.launch_id
        offered = launch.delivers_prompt and not record.prompted
        record.prompted = record.prompted or offered
        if launch.launch_id is not None and moved:
            record.launch_id = launch.launch_id
        if moved or offered:
            self.records.save(record, durable=True)
        elif not record.launched:
            # The id must survive a power cut: it is how the conversation is found again.
            record.launched = True
            self.records.save(record, durable=True)
            record.launched = False
        return launch

    def note_delivery(self, session: Session, agent: Agent, ctx: Context | None = None) -> bool:
        """Record that the kickoff prompt arrived, once the agent's own files prove it.

        A conversation proves it only after a launch with the prompt: without one (nobody was
        signed in) it holds what the user typed. Where a conversation is resumed with the
        prompt nothing can be told apart, and the launch itself counts.
        """
        record = session.record
        ctx = ctx or self.context(session)
        conversation = agent.conversation(ctx)
        changed = False
        if conversation and conversation != record.conversation:
            record.conversation = conversation
            changed = True
        if conversation and session.prompt_pending and record.prompted:
            record.delivered = True
            changed = True
        if changed:
            self.save_delivery(record, agent, ctx)
        return changed

    def save_delivery(self, record: Record, agent: Agent, ctx: Context) -> None:
        """Save what the agent's files prove, for good.

        Agents do not wait for the disk: a power cut must not leave the record without its proof.
        """
        for path in agent.stored(ctx):
            with contextlib.suppress(FileNotFoundError):  # a log of a database comes and goes
                locking.secure(path, self.user.home)
        self.records.save(record, durable=True)

    def _write_spec(
        self, session: Session, launch: Launch, launch_key: str, group: str | None
    ) -> os.PathLike[str]:
        self.launch_dir.mkdir(mode=0o700, exist_ok=True)
        path = self.launch_dir / f"{session.id}.json"
        self._failed_path(session).unlink(missing_ok=True)
        webhook = self._webhook(session)
        login = webhook.pop(place.SELF, None)
        spec: dict[str, Any] = {
            "name": session.name,
            "id": session.id,
            "launch": launch_key,
            "argv": launch.argv,
            "cwd": session.entry.working_directory,
            # Who the box is on GitHub may be said better in the user's own env file.
            "env": launch.env | ({place.SELF: login} if login else {}),
            "identity": {"AGENT_BOX_SESSION": session.name, **webhook},
            "envFiles": [str(path) for path in self._env_files(session)],
            "cgroup": group,
            "notify": str(self.notify_path),
            "failedFile": str(self._failed_path(session)),
        }
        specs.write(path, spec)
        return path

    def _webhook(self, session: Session) -> dict[str, str]:
        """Return what leads a session to its own subscriptions."""
        webhook = self.box.webhook
        mine = webhook.users.get(self.user.name) if webhook else None
        return place.environment(self.user.home, session.id, mine.url) if mine else {}

    def _failed_path(self, session: Session) -> Any:
        return self.launch_dir / f"{session.id}.failed"

    def forget(self, session_id: str) -> None:
        """Remove every file about a session that is not listed any more."""
        if is_uuid(session_id):
            self.records.forget(session_id)
            place.forget(self.user.home, session_id)
            own = self.user.session_env_path(session_id)
            for path in (own, locking.lock_path(own)):
                path.unlink(missing_ok=True)
            for path in self.launch_dir.glob(f"{session_id}.*"):
                path.unlink(missing_ok=True)

    def failed_reason(self, session: Session, launch_key: str | None) -> str | None:
        """Return the launcher's reason why launch `launch_key` can never succeed."""
        try:
            note = json.loads(self._failed_path(session).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        if launch_key is not None and note.get("launch") != launch_key:
            return None
        reason = note.get("reason")
        return reason if isinstance(reason, str) else None

    async def finish(self, session: Session, pane: Pane | None) -> policy.Verdict:
        """Record how a run ended and return what follows; the caller carries it out."""
        now = time.time()
        record = session.record
        lived = max(0.0, now - record.started_at)
        out_of_memory = False
        if self.groups is not None:
            out_of_memory = self.groups.oom_kills(session.id) > session.oom_kills
        verdict = policy.judge(
            agent=session.entry.agent,
            code=pane.code if pane else None,
            signo=pane.signal if pane else None,
            out_of_memory=out_of_memory,
            lived=lived,
            failures=session.failures,
            failed_reason=self.failed_reason(session, pane.launch) if pane else None,
        )
        if pane is not None:
            await self.keep_log(session, pane)
        if verdict.action == "fail" and not record.delivered:
            # The program never ran, so that it cannot have read the prompt either.
            record.prompted = False
        if not record.exits or record.exits[-1].at < record.started_at:
            exit_ = Exit(
                at=now,
                code=pane.code if pane else None,
                signal=pane.signal if pane else None,
                cause=verdict.cause,
            )
            record.exits = [*record.exits, exit_][-KEPT_EXITS:]
        session.failures = verdict.failures
        await asyncio.to_thread(self.records.save, record, durable=False)
        log.info(
            "session %s ended after %.1f s: %s; %s",
            session.name,
            lived,
            verdict.cause,
            {"park": "parked", "fail": "not started again"}.get(
                verdict.action, f"starts again in {verdict.delay:.1f} s"
            ),
        )
        return verdict

    async def keep_log(self, session: Session, pane: Pane) -> None:
        """Save the scrollback of the run in `pane`, which is about to go, once."""
        record = session.record
        if pane.lost or (pane.launch is not None and record.logged == pane.launch):
            return
        record.logged = pane.launch
        record.runs += 1
        with contextlib.suppress(TmuxError, OSError):
            text = await self.tmux.capture_run(pane.pane, HISTORY)
            await asyncio.to_thread(self.records.save_log, record, text)
        with contextlib.suppress(OSError):
            await asyncio.to_thread(self.records.save, record, durable=False)

    async def end(self, session: Session | None, pane: Pane, session_id: str | None) -> None:
        """End a session: ask its program to leave, then kill what is left of it.

        A tmux server that does not answer keeps its empty pane until it does.
        """
        if session is not None:
            await self.keep_log(session, pane)
        if not pane.ended:
            await self.ask_to_leave(pane)
        with contextlib.suppress(TmuxDownError, TmuxSilentError):
            await self.tmux.kill(pane)
            asyncio.get_running_loop().call_later(REAP, self.tmux.reap)
        if self.groups is not None and session_id is not None:
            await self.groups.remove(session_id)

    async def ask_to_leave(self, pane: Pane) -> None:
        """Hang up on the program, as a closed terminal does, and wait a little for its end."""
        try:
            descriptor = os.pidfd_open(pane.pid)
        except OSError:
            return
        try:
            for number, seconds in ((signal.SIGHUP, GRACE), (signal.SIGKILL, GRACE)):
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(descriptor, number)
                if number is signal.SIGHUP:
                    # A shell ignores nothing but may be stopped; let the signal reach it.
                    with contextlib.suppress(OSError):
                        signal.pidfd_send_signal(descriptor, signal.SIGCONT)
                if await _wait_readable(descriptor, seconds):
                    return
        finally:
            os.close(descriptor)

    async def restart_process(self, session: Session, pane: Pane) -> None:
        """End the program in `pane` and its children, and leave the pane for the next run."""
        await self.keep_log(session, pane)
        if not pane.ended:
            await self.ask_to_leave(pane)
        if self.groups is not None and self.groups.populated(session.id):
            self.groups.kill(session.id)


async def _wait_readable(descriptor: int, seconds: float) -> bool:
    loop = asyncio.get_running_loop()
    if select.select([descriptor], [], [], 0)[0]:
        return True
    done = asyncio.Event()
    loop.add_reader(descriptor, done.set)
    try:
        async with asyncio.timeout(seconds):
            await done.wait()
        return True
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
