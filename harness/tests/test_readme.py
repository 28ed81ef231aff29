"""The README says what scenarios assert: tools that work, and how exposed each unit is."""

from __future__ import annotations

from pathlib import Path

from agent_box_harness import tools
from agent_box_harness.exposure import CEILINGS

REPO = Path(__file__).resolve().parents[2]
README = (REPO / "README.md").read_text()


def test_developer_tools():
    """It shows the table that test_developer_tools.py asserts."""
    assert tools.between_markers(README) == tools.markdown()


def test_exposure():
    """It shows the figures that test_hardening.py asserts."""
    shown = README.partition("<!-- exposure -->")[2].partition("<!-- /exposure -->")[0]
    rows = [f"| `{unit}` | {score} |" for unit, score in CEILINGS.items()]
    assert shown.strip().splitlines()[2:] == rows
