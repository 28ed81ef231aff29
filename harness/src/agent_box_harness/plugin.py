"""The pytest plugin that hands scenarios a box.

A scenario is a test that takes the fixture `box`. It gets a guest of its own, fresh and fully
booted, and says by markers what is special:

``@pytest.mark.needs("power-cut", "memory-limits", …)``
    capabilities of the machine or of its image (see `needs.ALL_CAPABILITIES`, `OF_THE_IMAGE`)
``@pytest.mark.host("vm")``
    another host configuration than that of ``--host``
``@pytest.mark.cold``
    a real boot instead of a clone of the booted guest
``@pytest.mark.shared``
    one guest for the scenarios of a module, one after the other: each leaves it as it found it
    (after a failure the next one gets a fresh guest)
``@pytest.mark.renewed``
    one guest for all such scenarios, whose users are made anew before each: for what touches
    nothing but users, their homes, processes and services, and puts stubs in the place of CLIs
``@pytest.mark.renewed("module")``
    the same guest, whose users are made anew before the first scenario of the module: each leaves
    it to the next one as it found it. With `touches=("alice",)`, for either kind, nothing happens
    to anybody but alice, so that whoever comes next finds the others as they were
``@pytest.mark.limit(seconds)``
    longest time for the scenario, at native speed

``--guest auto`` gives each scenario the quickest guest that can run it. An explicit guest skips
what it cannot run, with the reason.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import evidence, lending, report, turns
from agent_box_harness.box import Box
from agent_box_harness.choice import CHOICES, Guests, pick
from agent_box_harness.errors import HarnessError, RequestFailedError
from agent_box_harness.lending import Lending
from agent_box_harness.needs import ALL_CAPABILITIES
from agent_box_harness.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from agent_box_harness.machine import Machine

DEFAULT_LIMIT = 90.0
"""Seconds at native speed that a scenario may take unless it says otherwise."""
CLEANUP_RESERVE = 60.0
"""Seconds before the deadline of the whole run at which scenarios end: evidence takes time."""
OF_A_WHOLE_MACHINE = ALL_CAPABILITIES - {"network", "reboot"}
"""What containers cannot do everywhere."""

MARKERS = (
    "needs(*capabilities): what the machine must be able to do, or its image have",
    "host(name): the host configuration to boot instead of --host",
    "cold: boot for real instead of cloning the booted guest",
    "shared: use one guest for the marked scenarios of a module, one after the other",
    "renewed(each, touches): one guest, whose users, or those named, are made anew for each",
    "limit(seconds): longest time for the scenario, at native speed",
)

guests_key = pytest.StashKey[Source]()
machine_key = pytest.StashKey["Machine"]()
run_key = pytest.StashKey[report.Run]()
workdir_key = pytest.StashKey[Path]()
lent_key = pytest.StashKey[Lending]()
failed_key = pytest.StashKey[bool]()


class ScenarioTimeoutError(RequestFailedError):
    """A scenario took longer than it may."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of a run on guests."""
    group = parser.getgroup("agent-box", "scenarios on a guest")
    group.addoption("--guest", choices=CHOICES, default="auto", help="which machine to boot")
    group.addoption("--host", default="test", help="host configuration to boot (default: test)")
    group.addoption(
        "--box-reports",
        type=Path,
        default=None,
        help="folder for page, JUnit and evidence (default: build/reports/DATE)",
    )
    group.addoption(
        "--deadline",
        type=float,
        default=None,
        help="seconds for the whole run; scenarios end before it, with evidence",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the markers; say where reports go before pytest's own JUnit writer looks."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        folder = Path(worker["agent_box_folder"])
    else:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        given: Path | None = config.getoption("--box-reports")
        folder = (given or config.rootpath / "build/reports" / stamp).absolute()
        if given is not None and config.option.xmlpath is None:
            config.option.xmlpath = str(folder / "junit.xml")
    config.stash[run_key] = report.Run(folder)
    config.stash[lent_key] = Lending()
    config.stash[guests_key] = Guests(
        repo=config.rootpath,
        choice=config.getoption("--guest"),
        say=_progress(config),
    )


class XdistHooks:
    """Hooks that exist only while pytest-xdist is active."""

    def pytest_configure_node(self, node: Any) -> None:
        """Give the workers the folder of this run."""
        node.workerinput["agent_box_folder"] = str(node.config.stash[run_key].folder)


def pytest_plugin_registered(plugin: object, manager: pytest.PytestPluginManager) -> None:
    """Join pytest-xdist when it is there; its hooks are unknown otherwise."""
    name = manager.get_name(plugin)
    if name == "dsession" and not manager.hasplugin("agent-box-xdist"):
        manager.register(XdistHooks(), "agent-box-xdist")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Learn what the run needs, so that one image serves all scenarios of a host."""
    guests = config.stash[guests_key]
    for item in items:
        if _is_scenario(item):
            guests.expect(_host(item), _needs(item))
    # What may have to be emulated takes longest, so that it begins first.
    heavy = sorted(filter(_is_heavy, items), key=_limit, reverse=True)
    others = [item for item in items if not _is_heavy(item)]
    others.sort(key=lambda item: lending.turn(item, _host(item)) if _is_scenario(item) else (0, ()))
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = turns.order(heavy, others, workers, os.cpu_count() or 1)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Say which guest and accelerator this run uses, before anything boots."""
    guests = config.stash[guests_key]
    if not guests.expected:
        return []
    # the probe of the accelerator may build the guest's base first, and tells so
    with _uncaptured(config):
        return [f"guest: {guests.headline()}"]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what the chosen guest cannot run, before any guest is made."""
    if not _is_scenario(item):
        return
    function = getattr(item, "function", None)
    proves = " ".join((getattr(function, "__doc__", None) or "").split())
    item.user_properties.append(("proves", proves))
    guests = item.config.stash[guests_key]
    reason = guests.reason_against(_needs(item))
    item.user_properties.append(("guest", "" if reason else pick(guests.choice, _needs(item))))
    if reason:
        pytest.skip(reason)


@pytest.fixture
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Box]:
    """A fresh, fully booted box for this test alone."""
    item = request.node
    with _guest(item, tmp_path) as machine:
        item.stash[machine_key] = machine
        item.user_properties.append(("guest", machine.description))
        if item.get_closest_marker("cold") is not None:
            machine.wait_ready()
        with _time_limit(item, machine):
            yield Box(machine)


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Callable[[str, float], None]:
    """Call with a name and seconds to print a time in the report (no assertion)."""

    def note(name: str, seconds: float) -> None:
        request.node.user_properties.append((f"measured {name}", round(seconds, 3)))

    return note


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End a shared guest with the last scenario that uses it, or the first that fails in it."""
    lent = item.config.stash[lent_key]
    lent.end_before(None if nextitem is None else _lent_key(nextitem))
    if item.stash.get(failed_key, False):
        lent.end(_lent_key(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Collect the evidence while the guest of a failed scenario still runs."""
    result = yield
    if result.failed:
        item.stash[failed_key] = True
        if call.when == "teardown":  # what it should have undone is still there
            item.config.stash[lent_key].end(_lent_key(item))
    if call.excinfo is None or result.skipped or call.when == "teardown" or not _is_scenario(item):
        return result
    machine = item.stash.get(machine_key, None)
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", item.name)
    folder = item.config.stash[run_key].folder / safe
    with contextlib.suppress(HarnessError, OSError, KeyError, ValueError):
        if machine is not None:
            evidence.collect(Box(machine), folder)
        else:  # it never came up: its console is all there is
            folder.mkdir(parents=True, exist_ok=True)
            for log in item.stash[workdir_key].glob("*.log"):
                shutil.copyfile(log, folder / log.name)
    item.user_properties.append(("evidence", str(folder)))
    result.user_properties = list(item.user_properties)
    result.sections.append(("evidence", f"{folder}"))
    return result


class Reporter:
    """Gathers results in the process that talks to the terminal, and writes the page."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.run = config.stash[run_key]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take one phase of one scenario."""
        self.run.add(report)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write the page and say where it is."""
        if not self.run.scenarios:
            return
        facts = [
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.run.started))
            + f", {time.time() - self.run.started:.0f} s",
            self.config.stash[guests_key].headline(),
        ]
        page = report.write(
            self.run.folder, "agent-box scenarios", facts, list(self.run.scenarios.values())
        )
        terminalreporter.write_line(f"report: {page}")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Report in the controller only: workers send their results there."""
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(Reporter(session.config), "agent-box-report")


def _is_scenario(item: pytest.Item) -> bool:
    """Tell whether a test gets its `box` from here: unit tests may call something else so."""
    info = getattr(item, "_fixtureinfo", None)
    definitions = info.name2fixturedefs.get("box", ()) if info is not None else ()
    for definition in reversed(definitions):  # the closest to the test first
        if definition.func.__module__ == __name__:
            return True
        if "box" not in definition.argnames:  # it does not build on ours
            return False
    return False


def _needs(item: pytest.Item) -> frozenset[str]:
    return frozenset(str(need) for marker in item.iter_markers("needs") for need in marker.args)


def _is_heavy(item: pytest.Item) -> bool:
    """Tell whether a test is a scenario that may have to be emulated."""
    return _is_scenario(item) and bool(_needs(item) & OF_A_WHOLE_MACHINE)


def _host(item: pytest.Item) -> str:
    marker = item.get_closest_marker("host")
    return str(marker.args[0] if marker else item.config.getoption("--host"))


@contextlib.contextmanager
def _guest(item: pytest.Item, tmp_path: Path) -> Iterator[Machine]:
    """Give a scenario a guest of its own, or the one that its module shares."""
    guests = item.config.stash[guests_key]
    cold = item.get_closest_marker("cold") is not None
    workdir = item.stash[workdir_key] = tmp_path / "guest"
    fresh = functools.partial(guests.fresh, _host(item), _needs(item), workdir, cold=cold)
    key = _lent_key(item)
    if not key:
        with fresh() as machine:
            yield machine
        return
    yield item.config.stash[lent_key].lend(key, lending.tenant(item), fresh)


def _lent_key(item: pytest.Item) -> tuple[str, ...]:
    """Which guest of several scenarios this one uses; empty for one of its own."""
    if not _is_scenario(item):
        return ()
    sharing = lending.sharing(item, _host(item))
    guests = item.config.stash[guests_key]
    needs = _needs(item)
    if not sharing or guests.reason_against(needs):
        return ()
    return (*sharing, pick(guests.choice, needs))


def _limit(item: pytest.Item) -> float:
    marker = item.get_closest_marker("limit")
    return float(marker.args[0] if marker else DEFAULT_LIMIT)


@contextlib.contextmanager
def _time_limit(item: pytest.Item, machine: Machine) -> Iterator[None]:
    """End a scenario that takes too long, and each before the run's own deadline."""
    seconds = _limit(item) * machine.time_factor
    deadline: float | None = item.config.getoption("--deadline")
    if deadline is not None:
        left = item.config.stash[run_key].started + deadline - CLEANUP_RESERVE - time.time()
        seconds = max(1.0, min(seconds, left))

    def ring(*_: object) -> None:
        raise ScenarioTimeoutError(f"the scenario took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _progress(config: pytest.Config) -> Callable[[str], None]:
    """Print a line about a long step past pytest's capturing, from workers too."""

    def say(text: str) -> None:
        terminal = sys.__stderr__
        with _uncaptured(config):
            if terminal is not None:
                terminal.write(f"\n  {text}")
                terminal.flush()

    return say


def _uncaptured(config: pytest.Config) -> contextlib.AbstractContextManager[None]:
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        return contextlib.nullcontext()
    shown: contextlib.AbstractContextManager[None] = capture.global_and_fixture_disabled()
    return shown
