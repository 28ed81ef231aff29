"""What the scripts prepare before anything of ours is installed."""

from __future__ import annotations

import ast
import sys

import pytest

from agent_box_harness import bootstrap


@pytest.mark.parametrize(
    ("arguments", "wanted", "unwanted"),
    [
        (["test"], {"shellcheck", "qemu-system-x86", "tmux"}, set()),
        (["test", "unit"], {"shellcheck", "tmux"}, {"qemu-system-x86"}),
        (["test", "box", "-k", "x"], {"qemu-system-x86", "mmdebstrap"}, {"shellcheck"}),
        (["try", "--check"], {"qemu-utils", "uidmap"}, {"shellcheck"}),
        (["try", "--help"], set(), {"tmux"}),
        (["stop"], set(), {"tmux"}),
    ],
)
def test_each_command_needs_only_its_own_packages(arguments, wanted, unwanted):
    found = set(bootstrap.packages_for(arguments, root=False))
    assert wanted <= found
    assert not unwanted & found
    assert "systemd-container" not in found


def test_root_gets_the_container_too():
    assert "systemd-container" in bootstrap.packages_for(["try"], root=True)
    assert "systemd-container" not in bootstrap.packages_for(["test", "unit"], root=True)


def test_missing_packages_are_told_by_their_proof():
    needs = {"there": "sh", "gone": "no-such-program-here", "file": "/no/such/file"}
    assert bootstrap.missing_packages(needs) == ["gone", "file"]


def test_nix_is_used_where_it_is_and_can_be_refused(monkeypatch):
    monkeypatch.setattr(bootstrap.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.delenv("AGENT_BOX_NIX", raising=False)
    assert "check" in bootstrap.with_nix(["test"])
    assert "develop" in bootstrap.with_nix(["test", "box"])
    assert "run" in bootstrap.with_nix(["try"])
    monkeypatch.setenv("AGENT_BOX_NIX", "0")
    assert bootstrap.with_nix(["test"]) is None


def test_it_runs_on_a_bare_python():
    """Only the standard library, since it runs before anything is installed."""
    tree = ast.parse(bootstrap.Path(bootstrap.__file__).read_text())
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported <= set(sys.stdlib_module_names)


def test_the_lock_names_no_place_to_download_from():
    text = bootstrap.REQUIREMENTS.read_text()
    assert "://" not in text
    lines = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert all("==" in line and line.endswith("\\") for line in lines)
