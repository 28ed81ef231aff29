"""Turns the rendered config of one host, and the runtime, into a layer on the Debian base."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box_harness.errors import BuildError
from agent_box_harness.guest.storemap import STORE_MAP, substitute

if TYPE_CHECKING:
    from agent_box_harness.guest.layer import Layer

PACKAGES = "/usr/lib/python3/dist-packages"
_MODES = {"sudoers": 0o440}
"""Files below /etc that must not have mode 0444."""
_SEEDS = "etc/agent-box/seeds"
"""Where each user has a file that is nobody else's."""
_FIRST_UID = 1000
_FIRST_SYSTEM_UID = 900


@dataclass
class Accounts:
    """The account files of the base, to which users are added."""

    passwd: list[str]
    group: list[str]
    shadow: list[str]
    gshadow: list[str]

    @classmethod
    def read(cls, directory: Path) -> Accounts:
        """Read copies of the base's files."""
        names = ("passwd", "group", "shadow", "gshadow")
        return cls(*((directory / name).read_text().splitlines() for name in names))

    def add(self, declared: dict[str, Any]) -> dict[str, tuple[int, int]]:
        """Add the users and groups of accounts.json; return user -> (uid, gid)."""
        for name in declared["groups"]:
            self._group(name, system=False)
        ids = {}
        for user in declared["users"]:
            name, system = user["name"], bool(user["system"])
            known = self._known(name)
            if known is not None:  # a service that Debian has an account for, too
                ids[name] = known
                self._leave_all(name)
                for extra in user["extraGroups"]:
                    self._group(extra, system=True)
                    self._join(name, extra)
                continue
            gid = self._group(user["group"], system=system)
            uid = user["uid"]
            if uid is None:
                uid = _free({int(line.split(":")[2]) for line in self.passwd}, system=system)
            self.passwd.append(f"{name}:x:{uid}:{gid}::{user['home']}:{user['shell']}")
            self.shadow.append(f"{name}:!:1::::::")
            for extra in user["extraGroups"]:
                self._group(extra, system=True)
                self._join(name, extra)
            ids[name] = (uid, gid)
        return ids

    def write(self, layer: Layer) -> None:
        """Put the files on a layer; group 42 is Debian's `shadow`."""
        layer.file("/etc/passwd", "\n".join(self.passwd) + "\n")
        layer.file("/etc/group", "\n".join(self.group) + "\n")
        layer.file("/etc/shadow", "\n".join(self.shadow) + "\n", 0o640, gid=42)
        layer.file("/etc/gshadow", "\n".join(self.gshadow) + "\n", 0o640, gid=42)

    def _known(self, name: str) -> tuple[int, int] | None:
        for line in self.passwd:
            fields = line.split(":")
            if fields[0] == name:
                return int(fields[2]), int(fields[3])
        return None

    def _group(self, name: str, *, system: bool) -> int:
        for line in self.group:
            fields = line.split(":")
            if fields[0] == name:
                return int(fields[2])
        gid = _free({int(line.split(":")[2]) for line in self.group}, system=system)
        self.group.append(f"{name}:x:{gid}:")
        self.gshadow.append(f"{name}:!::")
        return gid

    def _leave_all(self, user: str) -> None:
        """Take a user out of the groups that Debian has put it in."""
        for index, line in enumerate(self.group):
            *rest, members = line.split(":")
            left = [member for member in members.split(",") if member != user]
            self.group[index] = ":".join([*rest, ",".join(left)])

    def _join(self, user: str, group: str) -> None:
        for index, line in enumerate(self.group):
            name, password, gid, members = line.split(":")
            if name == group:
                joined = ",".join([*filter(None, members.split(",")), user])
                self.group[index] = f"{name}:{password}:{gid}:{joined}"


def _free(taken: set[int], *, system: bool) -> int:
    if system:
        return next(i for i in range(_FIRST_SYSTEM_UID, 0, -1) if i not in taken)
    return next(i for i in range(_FIRST_UID, 60000) if i not in taken)


def install_rendered(layer: Layer, rendered: Path, accounts: Accounts) -> None:
    """Put units, /etc files, accounts and homes of `nixos-tests/rendered/<host>` on the layer."""
    if not (rendered / "accounts.json").is_file():
        raise BuildError(f"no rendered config in {rendered}; run scripts/render")
    declared = json.loads(substitute((rendered / "accounts.json").read_text(), "accounts.json"))
    ids = accounts.add(declared)
    accounts.write(layer)
    for user in declared["users"]:
        uid, gid = ids[user["name"]]
        if not user["system"]:  # their units make what they need
            layer.directory(user["home"], int(user["homeMode"], 8), uid, gid)
    units = rendered / "units"
    for path in sorted(units.rglob("*")):
        relative = path.relative_to(units).as_posix()
        if path.is_dir() or path.suffix == ".wants":
            continue
        layer.file(f"/etc/systemd/system/{relative}", substitute(path.read_text(), relative))
    for path in sorted(units.glob("*.wants")):
        for target in path.read_text().split():
            _want(layer, path.name.removesuffix(".wants"), target)
    for path in sorted((rendered / "etc").rglob("*")):
        if path.is_dir():
            continue
        relative = path.relative_to(rendered / "etc").as_posix()
        text = substitute(path.read_text(), relative)
        if path.parent.relative_to(rendered).as_posix() == _SEEDS:
            layer.file(f"/etc/{relative}", text, 0o400, *ids[path.stem])
        else:
            layer.file(f"/etc/{relative}", text, _MODES.get(relative, 0o444))


def _want(layer: Layer, unit: str, target: str) -> None:
    """Pull a unit in; one that the rendered config only overrides is Debian's own."""
    ours = f"/etc/systemd/system/{unit}"
    location = ours if ours in layer.nodes else f"/usr/lib/systemd/system/{unit}"
    layer.link(f"/etc/systemd/system/{target}.wants/{unit}", location)


def install_runtime(layer: Layer, package: Path) -> None:
    """Put pkgs/agent-box and its console scripts on the layer."""
    source = package / "src"
    layer.tree(source, PACKAGES)
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    for name, target in project.get("scripts", {}).items():
        module, _, function = target.partition(":")
        # -I: what a user puts into the environment or the working directory
        # must not reach the programs of the box.
        layer.file(
            f"/usr/bin/{name}",
            "#!/usr/bin/python3 -I\n"
            f"import sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n",
            0o755,
        )


def install_pages(layer: Layer, package: Path, rendered: Path, terminal: Path) -> None:
    """Put the files that the edge serves itself on the layer; `terminal` is the page of ttyd."""
    box = json.loads((rendered / "etc/agent-box/box.json").read_text())
    if not box["web"]:
        return
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "pages"
        command = [sys.executable, "-c", "from agent_box.web.pages import main; main()", str(made)]
        command += ["--terminal", str(terminal), "--host", box["web"]["domain"]]
        done = subprocess.run(
            [*command, *box["web"]["users"]],
            env={"PYTHONPATH": str(package / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise BuildError(f"the pages of the box cannot be made:\n{done.stderr}")
        place = STORE_MAP["agent-box-pages"]
        for path in sorted(made.rglob("*")):
            target = f"{place}/{path.relative_to(made).as_posix()}"
            if path.is_symlink():
                layer.link(target, str(path.readlink()))
            elif path.is_file():
                layer.file(target, path.read_bytes())
