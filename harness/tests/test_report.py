"""The page of a run."""

from __future__ import annotations

from agent_box_harness import report
from agent_box_harness.report import Scenario


def test_the_page_is_self_contained_and_escaped(tmp_path):
    evidence = tmp_path / "run/test_x"
    evidence.mkdir(parents=True)
    (evidence / "journal.txt").write_text("<b>line</b>\n" * 10_000)
    (evidence / "journal.export.gz").write_bytes(b"\x1f\x8b")
    scenarios = [
        Scenario("harness/scenarios/test_boot.py::test_ok", "Boots.", "passed", 1.25, "qemu"),
        Scenario(
            "harness/scenarios/test_boot.py::test_x[<a>]",
            "A & B",
            "failed",
            message="assert '<' in x",
            evidence=evidence,
        ),
    ]
    page = report.write(tmp_path / "run", "run <1>", ["emulated"], scenarios).read_text()
    for foreign in ("http://", "https://", "<script", "src=", "@import"):
        assert foreign not in page
    assert "<b>line" not in page
    assert "the last 40000 of" in page
    assert 'href="test_x/journal.export.gz"' in page
    assert page.index("test_x") < page.index("test_ok"), "failures come first"
    assert "prefers-color-scheme: dark" in page
    assert "1 failed" in page
    assert "1 passed" in page
    assert len(page) < 100_000


def test_latest_points_at_the_last_run(tmp_path):
    for name in ("one", "two"):
        report.write(tmp_path / name, "t", [], [])
    assert (tmp_path / "latest/index.html").resolve() == (tmp_path / "two/index.html").resolve()
