"""What people read agrees with the code: tables, links between pages, variables, length."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent_box_harness import tools
from agent_box_harness.exposure import CEILINGS

REPO = Path(__file__).resolve().parents[2]
PAGES = [*REPO.glob("*.md"), *(REPO / "docs").glob("*.md")]
SECURITY = (REPO / "docs/security.md").read_text()

OF_THE_BOX = {
    *("CONFIG", "SESSION_ID", "SESSION", "LIVE", "READY", "GUIDES", "GATE_ADMIN", "URL"),
    *("HOOK_SESSION_ARGS", "HOOK_SESSION_MAX", "WEB_IDLE", "WEBHOOK_URL", "SITES", "UTS"),
}
"""Variables that programs of a box tell each other, which nobody who develops sets."""


def test_developer_tools():
    """The page shows the table that test_developer_tools.py asserts."""
    assert tools.between_markers(SECURITY) == tools.markdown()


def test_exposure():
    """The page shows the figures that test_hardening.py asserts."""
    shown = SECURITY.partition("<!-- exposure -->")[2].partition("<!-- /exposure -->")[0]
    rows = [f"| `{unit}` | {score} |" for unit, score in CEILINGS.items()]
    assert shown.strip().splitlines()[2:] == rows


def test_readme_stays_short():
    """A newcomer reads it in one go; what is longer has a page of its own."""
    assert len((REPO / "README.md").read_text().splitlines()) <= 300


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page: Path):
    """Each link to a file of the repository leads to one, and each fragment to a heading."""
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        path, _, fragment = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), f"{page.name} links to {target}"
        if fragment:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}
            assert fragment in anchors, f"{page.name} links to {target}"


def test_scenarios_are_there():
    """Each scenario that the README names as a proof exists."""
    named = set(re.findall(r"`((?:\w+/)*test_\w+\.py)`", (REPO / "README.md").read_text()))
    assert len(named) > 20
    places = (REPO / "harness/scenarios", REPO / "pkgs/agent-box")
    assert [n for n in sorted(named) if not any((place / n).is_file() for place in places)] == []


def test_variables():
    """CONTRIBUTING.md lists each variable that changes how tests and tools behave."""
    page = (REPO / "CONTRIBUTING.md").read_text()
    folders = (REPO / "harness", REPO / "pkgs/agent-box/tests")
    sources = [path for folder in folders for path in folder.rglob("*.py")]
    read = re.compile(r"environ(?:\.get\(|\[)\"AGENT_BOX_(\w+)\"")
    used = {name for path in sources for name in read.findall(path.read_text())}
    missing = sorted(n for n in used - OF_THE_BOX if f"`AGENT_BOX_{n}`" not in page)
    assert missing == []
