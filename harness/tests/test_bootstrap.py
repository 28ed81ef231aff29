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


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """A folder with a lock file, and an npm that notes its calls and ends as `status` says."""
    (tmp_path / "package-lock.json").write_text("{}")
    program = tmp_path / "bin/npm"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\n'
        f"mkdir -p {tmp_path}/node_modules\nexit $(cat {tmp_path}/status)\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    (tmp_path / "status").write_text("0")
    return tmp_path


def test_node_modules_are_installed_once_and_again_after_a_change(npm):
    for _ in range(2):
        bootstrap.install_node_modules(npm)
    assert (npm / "calls").read_text().count("ci --prefix") == 1
    assert "--ignore-scripts" in (npm / "calls").read_text()
    (npm / "package-lock.json").write_text('{"lockfileVersion": 3}')
    bootstrap.install_node_modules(npm)
    assert (npm / "calls").read_text().count("ci --prefix") == 2


def test_without_node_modules_the_rest_goes_on(npm, capfd):
    (npm / "status").write_text("1")
    bootstrap.install_node_modules(npm)
    assert "accessibility will not be checked" in capfd.readouterr().err
    (npm / "status").write_text("0")
    bootstrap.install_node_modules(npm)
    assert (npm / "calls").read_text().count("ci --prefix") == 2


def test_what_pages_load_is_pinned_by_integrity():
    import json

    lock = json.loads((bootstrap.NODE / "package-lock.json").read_text())
    for name, package in lock["packages"].items():
        assert not name or package["integrity"].startswith("sha512-")
        assert "resolved" not in package  # whichever registry npm is told to use
