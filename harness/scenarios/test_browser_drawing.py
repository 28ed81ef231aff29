"""Terminals as users see them: drawn with WebGL, on screens with many pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent_box_harness import browser

if TYPE_CHECKING:
    from pathlib import Path

    from agent_box_harness.browser import Terminal, Visitor

pytestmark = [pytest.mark.limit(120), browser.needed(), pytest.mark.renewed("module")]

CANVAS = """() => {
  const canvas = [...document.querySelectorAll(".xterm-screen canvas")]
    .find((each) => each.getContext("webgl2"));
  if (!canvas) return null;
  const { width, height } = canvas.getBoundingClientRect();
  return { width, height, across: canvas.width, down: canvas.height, ratio: devicePixelRatio,
           columns: window.term.cols, window: innerWidth };
}"""


@pytest.mark.parametrize(
    ("size", "scale"), [(browser.DESKTOP, 1), (browser.PHONE, 3)], ids=["desktop", "phone"]
)
def test_webgl(visitor: Visitor, tmp_path: Path, size: dict[str, int], scale: int) -> None:
    """What is typed is seen, sharp to the pixel and over the whole width; on a phone its row of
    keys works, too.
    """
    with visitor.drawing(tmp_path / "profile", size, scale) as context:
        here = context.new_page()
        visitor.sign_in(here, "alice", path="/alice/?arg=main")
        terminal = visitor.terminal(here, "main")
        terminal.wait("$")
        terminal.frame.wait_for_function(CANVAS)
        terminal.type("clear; echo MARK=$((6*7)); sleep 600")
        here.keyboard.press("Enter")
        terminal.wait("MARK=42")
        here.wait_for_timeout(1500)  # the font has its last size then
        visitor.picture(here, f"webgl-{scale}")
        found = terminal.frame.evaluate(CANVAS)
        assert found["ratio"] == scale
        assert abs(found["across"] - found["width"] * scale) <= 1
        assert abs(found["down"] - found["height"] * scale) <= 1
        # Less than a column is left over, beside the room of a scroll bar.
        assert found["window"] - found["width"] < found["width"] / found["columns"] + 20
        assert _drawn(terminal, "MARK=42", 0) > 1.5 * _drawn(terminal, "MARK=42", 2)
        if size == browser.PHONE:
            here.get_by_role("button", name="Control C", exact=True).tap()
        else:
            here.keyboard.press("Control+C")
        terminal.wait("^C")
    assert visitor.problems == []


def _drawn(terminal: Terminal, text: str, below: int) -> int:
    """Return how much there is to see in the line so many below a text, in bytes of a picture."""
    element = terminal.frame.locator(".xterm-screen")
    box = element.bounding_box()
    assert box is not None
    height = box["height"] / terminal.frame.evaluate("window.term.rows")
    _, middle = terminal.point(text)
    top = middle + (below - 0.5) * height
    clip = {"x": box["x"], "y": top, "width": box["width"] / 2, "height": height}
    return len(terminal.page.screenshot(clip=clip))
