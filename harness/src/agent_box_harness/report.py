"""One HTML page per run: what was proven, on which guest, and the evidence of what was not.

The page is self-contained (no asset, script or font from elsewhere), so that it can be sent
to somebody as one file. Evidence is inlined, shortened to its end; the whole files lie beside
the page and are linked.
"""

from __future__ import annotations

import html
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

INLINE_LIMIT = 40_000  # characters of one evidence file shown in the page
INLINE_SUFFIXES = {".txt", ".log", ".json", ".jsonl"}
ORDER = {"failed": 0, "error": 1, "skipped": 2, "passed": 3}

STYLE = """
:root { color-scheme: light dark; --bg: #fff; --fg: #1c1f23; --dim: #5c6570; --line: #d9dee4;
  --box: #f5f7f9; --passed: #14713a; --failed: #b3261e; --skipped: #7a5a00; }
@media (prefers-color-scheme: dark) { :root { --bg: #14171a; --fg: #e4e7ea; --dim: #9aa4ae;
  --line: #30363d; --box: #1c2126; --passed: #5cc98a; --failed: #ff8a80; --skipped: #e0b95a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.25rem 4rem; background: var(--bg);
  color: var(--fg); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; } .dim { color: var(--dim); }
.totals { display: flex; flex-wrap: wrap; gap: .5rem 1.5rem; margin: 1rem 0; font-weight: 600; }
.passed { color: var(--passed); } .failed, .error { color: var(--failed); }
.skipped { color: var(--skipped); }
article { border-top: 1px solid var(--line); padding: .75rem 0; }
article header { display: flex; flex-wrap: wrap; gap: .25rem 1rem; align-items: baseline; }
article h3 { font: 600 1rem/1.4 ui-monospace, monospace; margin: 0; flex: 1 1 20rem;
  overflow-wrap: anywhere; }
details { margin: .4rem 0; } summary { cursor: pointer; color: var(--dim); }
pre { background: var(--box); border: 1px solid var(--line); border-radius: 6px; padding: .75rem;
  overflow-x: auto; font: 13px/1.45 ui-monospace, monospace; margin: .4rem 0; }
a { color: inherit; }
"""


@dataclass
class Scenario:
    """The outcome of one scenario. `seconds` is wall-clock, set-up of the guest included."""

    nodeid: str
    proves: str = ""
    outcome: str = "passed"
    seconds: float = 0.0
    guest: str = ""
    message: str = ""
    evidence: Path | None = None
    timings: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Test name without its file."""
        return self.nodeid.rpartition("::")[2] or self.nodeid


def render(title: str, facts: Sequence[str], scenarios: Sequence[Scenario], folder: Path) -> str:
    """Return the page. Links are relative to `folder`, where it will be written."""
    count = {name: sum(s.outcome == name for s in scenarios) for name in ORDER}
    totals = "".join(
        f'<span class="{name}">{number} {name}</span>' for name, number in count.items() if number
    )
    lines = "".join(f'<p class="dim">{html.escape(fact)}</p>' for fact in facts)
    by_file: dict[str, list[Scenario]] = {}
    for scenario in scenarios:
        by_file.setdefault(scenario.nodeid.partition("::")[0], []).append(scenario)
    groups = []
    for file, members in by_file.items():
        members.sort(key=lambda s: ORDER.get(s.outcome, 0))
        articles = "".join(_article(s, folder) for s in members)
        groups.append(f"<section><h2>{html.escape(_heading(file))}</h2>{articles}</section>")
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>"
        f'<h1>{html.escape(title)}</h1>{lines}<div class="totals">{totals}</div>'
        f"{''.join(groups)}</body></html>\n"
    )


def write(folder: Path, title: str, facts: Sequence[str], scenarios: Sequence[Scenario]) -> Path:
    """Write ``index.html`` into the folder of a run and point ``latest`` beside it there."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "index.html"
    page.write_text(render(title, facts, scenarios, folder))
    latest = folder.parent / "latest"
    if latest.is_symlink() or not latest.exists():
        latest.unlink(missing_ok=True)
        latest.symlink_to(folder.name)
    return page


def _heading(file: str) -> str:
    return Path(file).stem.removeprefix("test_").replace("_", " ").capitalize()


def _article(scenario: Scenario, folder: Path) -> str:
    outcome = html.escape(scenario.outcome)
    head = (
        f'<article id="{html.escape(scenario.name, quote=True)}"><header>'
        f"<h3>{html.escape(scenario.name)}</h3>"
        f'<span class="{outcome}">{outcome}</span>'
        f'<span class="dim">{scenario.seconds:.1f} s</span>'
        f'<span class="dim">{html.escape(scenario.guest)}</span></header>'
    )
    parts = [head]
    if scenario.proves:
        parts.append(f"<p>{html.escape(scenario.proves)}</p>")
    if scenario.timings:
        measured = ", ".join(f"{what} {sec:.2f} s" for what, sec in scenario.timings.items())
        parts.append(f'<p class="dim">Measured: {html.escape(measured)}</p>')
    if scenario.message:
        opened = " open" if scenario.outcome in ("failed", "error") else ""
        parts.append(
            f"<details{opened}><summary>What happened</summary>"
            f"<pre>{html.escape(scenario.message)}</pre></details>"
        )
    if scenario.evidence is not None and scenario.evidence.is_dir():
        parts += [_evidence(p, folder) for p in sorted(scenario.evidence.rglob("*")) if p.is_file()]
    return "".join(parts) + "</article>"


def _evidence(path: Path, folder: Path) -> str:
    try:
        link = path.relative_to(folder)
    except ValueError:
        link = path
    anchor = f'<a href="{html.escape(str(link), quote=True)}">{html.escape(str(link))}</a>'
    size = path.stat().st_size
    if path.suffix not in INLINE_SUFFIXES:
        return f"<p>{anchor} <span class='dim'>({size} bytes)</span></p>"
    text = path.read_text(errors="replace")
    note = ""
    if len(text) > INLINE_LIMIT:
        note = f"the last {INLINE_LIMIT} of {len(text)} characters"
        text = text[-INLINE_LIMIT:]
    return (
        f"<details><summary>{anchor} <span class='dim'>{note}</span></summary>"
        f"<pre>{html.escape(text)}</pre></details>"
    )


class Run:
    """What one pytest run knows about its scenarios; in the controller it becomes the page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started = time.time()
        self.scenarios: dict[str, Scenario] = {}

    def add(self, result: pytest.TestReport) -> None:
        """Fold one phase (setup, call, teardown) into its scenario."""
        facts = dict(result.user_properties)
        if "guest" not in facts:
            return
        scenario = self.scenarios.setdefault(result.nodeid, Scenario(result.nodeid))
        scenario.seconds += result.duration
        scenario.guest = str(facts["guest"]) or scenario.guest
        scenario.proves = str(facts.get("proves", ""))
        scenario.timings = {
            name.removeprefix("measured "): float(str(value))
            for name, value in result.user_properties
            if name.startswith("measured ")
        }
        if "evidence" in facts:
            scenario.evidence = Path(str(facts["evidence"]))
        if result.failed:
            scenario.outcome = "failed" if result.when == "call" else "error"
            scenario.message += result.longreprtext
        elif result.skipped:
            scenario.outcome = "skipped"
            reason = result.longrepr
            scenario.message = str(reason[2] if isinstance(reason, tuple) else reason)
