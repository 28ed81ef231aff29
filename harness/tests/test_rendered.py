"""The rendered config: fresh, free of hashes and versions, and folded by the rules of Nix."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_box_harness import rendered

REPO = Path(__file__).resolve().parents[2]
HASH = "0123456789abcdfghijklmnpqrsvwxyz"


def tree(host: str) -> dict[str, str]:
    return rendered.read_tree(REPO / rendered.TREE / host)


def test_committed_trees_are_fresh() -> None:
    assert rendered.problems(REPO) == []


def settings(unit: str) -> dict[str, list[str]]:
    """Return the values of each setting in a unit."""
    found: dict[str, list[str]] = {}
    for line in unit.splitlines():
        name, equals, value = line.partition("=")
        if equals:
            found.setdefault(name, []).append(value)
    return found


def test_who_bans_may_write_down_whom() -> None:
    """nixpkgs closes the whole file system to fail2ban, and its capabilities do not help there."""
    files = tree("test")
    unit = settings(files["units/fail2ban.service.d/overrides.conf"])
    action = settings(files["etc/fail2ban/action.d/agent-box-nftables.conf"].replace(" = ", "="))
    folder = str(Path(action["list"][0]).parent)
    assert unit["ProtectSystem"] == ["strict"]
    assert "CAP_DAC_OVERRIDE" not in unit["CapabilityBoundingSet"]
    assert unit["ReadWritePaths"] == [f"-{folder}"]
    # It exists before any service starts, and root owns it.
    assert f"d {folder} 0755 root root -" in files["etc/tmpfiles.d/agent-box.conf"].splitlines()
    programs = " ".join(unit["Environment"])
    assert all(f"@{package}@/bin" in programs for package in ("nftables", "gnused", "coreutils"))


@pytest.mark.parametrize("host", rendered.HOSTS)
class TestCommittedTree:
    def test_no_store_path_is_left(self, host: str) -> None:
        assert [path for path, text in tree(host).items() if "/nix/store" in text] == []

    def test_no_placeholder_holds_a_version(self, host: str) -> None:
        names = set().union(*map(rendered.placeholders, tree(host).values()))
        assert [name for name in names if re.search(r"-\d|\d\.\d", name)] == []

    def test_manifest_lists_what_is_there(self, host: str) -> None:
        files = tree(host)
        manifest = json.loads(files["manifest.json"])
        assert manifest["host"] == host
        assert {f"units/{name}" for name in manifest["units"]} <= files.keys()
        assert {f"etc/{path}" for path in manifest["etc"]} <= files.keys()
        used = set().union(*map(rendered.placeholders, files.values()))
        assert used == set(manifest["store"])

    def test_box_json_names_programs_of_the_box(self, host: str) -> None:
        box = json.loads(tree(host)["etc/agent-box/box.json"])
        assert box["version"] == 1
        assert box["defaultAgent"] in box["agents"]
        commands = [agent["command"] for agent in box["agents"].values()]
        for program in [*commands, *box["programs"].values()]:
            assert re.fullmatch(r"@[a-z-]+@/bin/[a-z-]+", program)

    def test_every_user_has_an_account_and_both_units(self, host: str) -> None:
        files = tree(host)
        box = json.loads(files["etc/agent-box/box.json"])
        accounts = json.loads(files["accounts.json"])
        people = {user["name"] for user in accounts["users"] if not user["system"]}
        assert people == set(box["users"])
        for user in box["users"]:
            assert f"User={user}" in files[f"units/agent-box-{user}.service"]
            assert f"User={user}" in files[f"units/agent-box-supervisor-{user}.service"]

    def test_every_user_of_the_browser_has_services_that_only_the_edge_reaches(
        self, host: str
    ) -> None:
        files = tree(host)
        box = json.loads(files["etc/agent-box/box.json"])
        users = box["web"]["users"] if box["web"] else {}
        assert ("etc/caddy/Caddyfile" in files) == bool(users)
        for user in users:
            for kind in ("settings", "terminal"):
                assert f"User={user}" in files[f"units/agent-box-{kind}-{user}.service"]
            sock = files[f"units/agent-box-settings-{user}.socket"]
            assert f"SocketUser={user}\n" in sock
            assert "SocketGroup=caddy\n" in sock
            assert "SocketMode=0660\n" in sock
            # What the edge dials is made by root in a directory of root's.
            assert (
                "d /run/agent-box-terminal 0755 root root -\n"
                in (files["etc/tmpfiles.d/agent-box.conf"])
            )
            sock = files[f"units/agent-box-relay-{user}.socket"]
            assert f"ListenStream=/run/agent-box-terminal/{user}.sock\n" in sock
            assert "SocketUser=root\n" in sock
            assert "SocketMode=0660\n" in sock
            assert f"User={user}\n" in files[f"units/agent-box-relay-{user}.service"]
            assert not re.search(
                r"--port|--credential", files[f"units/agent-box-terminal-{user}.service"]
            )
            assert f"import signed-in {user}\n" in files["etc/caddy/Caddyfile"]


def test_an_update_of_the_box_runs_these_commands_and_outlives_its_own_switch() -> None:
    """All inputs move, those of the host too: none is named."""
    files = tree("test")
    update = json.loads(files["etc/agent-box/box.json"])["update"]
    here = "/run/current-system/sw/bin"
    assert update["commands"] == {
        "resolve": [
            f"{here}/nix",
            *("--extra-experimental-features", "nix-command flakes"),
            *("flake", "update", "--flake", "{flake}"),
        ],
        "build": [f"{here}/nixos-rebuild", "build", "--flake", "{flake}#box"],
        "switch": [f"{here}/nixos-rebuild", "switch", "--flake", "{flake}#box"],
        "stop": [f"{here}/systemctl", "stop", "nixos-rebuild-switch-to-configuration.service"],
        "profile": [f"{here}/nix-env", "--profile", "/nix/var/nix/profiles/system", "--set"],
    }
    unit = settings(files["units/agent-box-update.service"])
    assert (unit["X-RestartIfChanged"], unit["X-StopOnRemoval"]) == (["false"], ["false"])
    assert unit["ExecStart"] == ["@agent-box@/bin/agent-box-update-service"]
    assert unit["ExecStopPost"] == ["@agent-box@/bin/agent-box-update-service --recover"]


@pytest.mark.parametrize("folder", ["template", "aws/template"])
def test_a_box_of_a_template_moves_its_own_packages(folder: str) -> None:
    """Were they those of our lock file, a box would get security updates when we move that."""
    flake = (REPO / "hosts" / folder / "flake.nix").read_text()
    ours = (REPO / "flake.nix").read_text()
    for name in ("nixpkgs", "agent-nixpkgs"):
        (url,) = re.findall(rf'^ *{name}\.url = "(.+)";', flake, re.MULTILINE)
        assert f'{name}.url = "{url}";' in ours
        assert f'inputs.{name}.follows = "{name}";' in flake


class TestHardening:
    """What the seed promises of every agent service, on every rendered host."""

    PROMISED = (
        "LockPersonality=true",
        "OOMPolicy=continue",
        "PrivateDevices=true",
        "PrivateTmp=true",
        "ProtectClock=true",
        "ProtectControlGroups=private",
        "ProtectHome=tmpfs",
        "ProtectKernelModules=true",
        "ProtectKernelTunables=true",
        "ProtectProc=invisible",
        "ProtectSystem=strict",
        "RestrictRealtime=true",
        "RestrictSUIDSGID=true",
        "UMask=0077",
        "X-RestartIfChanged=false",
        "IPAddressDeny=169.254.169.254",
        "IPAddressDeny=fd00:ec2::254",
    )

    @staticmethod
    def sandboxes() -> list[tuple[str, str, str]]:
        found = []
        for host in rendered.HOSTS:
            files = tree(host)
            users = json.loads(files["etc/agent-box/box.json"])["users"]
            found += [(host, user, files[f"units/agent-box-{user}.service"]) for user in users]
        return found

    def test_every_sandbox_keeps_every_promise(self) -> None:
        missing = [
            (host, user, line)
            for host, user, text in self.sandboxes()
            for line in self.PROMISED
            if line not in text.splitlines()
        ]
        assert missing == []

    def test_no_new_privileges_exactly_without_a_sudo_list(self) -> None:
        for host, user, text in self.sandboxes():
            rules = [
                line
                for line in tree(host)["etc/sudoers"].splitlines()
                if line.startswith(f"{user} ")
            ]
            assert (f"NoNewPrivileges={'false' if rules else 'true'}" in text) is True, (host, user)
            assert ("/run/wrappers/bin" in text) is bool(rules), (host, user)
            assert all("NOPASSWD" in rule and "NOSETENV" in rule for rule in rules)

    def test_whoever_has_the_network_is_denied_what_clouds_tell_the_machine(self) -> None:
        """Whatever address a user gives it, wherever that redirects or resolves to. One unit reads
        the notices of EC2, as root, and no address of anybody.
        """
        for host in rendered.HOSTS:
            files = tree(host)
            table = files["etc/agent-box/metadata.nft"]
            for path, text in files.items():
                if not re.fullmatch(r"units/agent-box-[^/]*[.]service|units/caddy[.]service", path):
                    continue
                # What mounts, what plays a service of the host, what makes networks, and the name
                # server, which asks whom the machine asks: of some clouds at that very address.
                if re.search(r"-(processes|sudo-probe|names|networks?(-[a-z]+)?)[.]service$", path):
                    continue
                unit = settings(text)
                families = unit.get("RestrictAddressFamilies", ["AF_INET"])
                alone = unit.get("PrivateNetwork") == ["true"]
                if alone or not {"AF_INET", "AF_INET6"} & set(families):
                    continue
                denied = unit.get("IPAddressDeny", [])
                if path == "units/agent-box-notify.service":
                    assert denied == ["any"]
                elif denied != ["any"]:
                    assert "169.254.169.254" in denied, (host, path)
                    assert "fe80::a9fe:a9fe" in denied, (host, path)
                    assert [each for each in denied if each not in table] == [], (host, path)

    def test_supervisors_never_gain_privileges(self) -> None:
        for host in rendered.HOSTS:
            for path, text in tree(host).items():
                if path.startswith("units/agent-box-supervisor-"):
                    assert "NoNewPrivileges=true" in text
                    assert "RestrictAddressFamilies=AF_UNIX" in text


class TestFolding:
    @pytest.mark.parametrize(
        ("store_name", "package"),
        [
            ("bash-interactive-5.3p9", "bash-interactive"),
            ("procps-4.0.4-bin", "procps"),
            ("python3-3.13.12", "python3"),
            ("netcat-gnu-0.7.1", "netcat-gnu"),
            ("unit-script", "unit-script"),
        ],
    )
    def test_version_and_output_go(self, store_name: str, package: str) -> None:
        assert rendered.package_name(store_name) == package

    @given(
        digest=st.text(HASH, min_size=32, max_size=32),
        name=st.from_regex(r"[a-z]{1,8}(-[a-z]{1,8}){0,2}", fullmatch=True),
        version=st.from_regex(r"[0-9]{1,3}(\.[0-9a-z]{1,4}){0,3}", fullmatch=True),
        rest=st.from_regex(r"(/[a-z]{1,5}){0,3}", fullmatch=True),
    )
    def test_only_the_name_of_a_package_is_left(
        self, digest: str, name: str, version: str, rest: str
    ) -> None:
        text = f"PATH=/a:/nix/store/{digest}-{name}-{version}{rest}:/b"
        assert rendered.fold_store_paths(text) == f"PATH=/a:@{name}@{rest}:/b"


class TestStaleness:
    @pytest.fixture
    def repo(self, tmp_path: Path) -> Path:
        for folder in ("modules", "hosts", "nixos-tests", "pkgs/agent-box"):
            shutil.copytree(
                REPO / folder,
                tmp_path / folder,
                ignore=shutil.ignore_patterns("src", "tests", "__pycache__"),
            )
        return tmp_path

    def test_a_copy_is_as_fresh(self, repo: Path) -> None:
        assert rendered.problems(repo) == rendered.problems(REPO)

    def test_a_changed_module_is_noticed(self, repo: Path) -> None:
        module = repo / "modules/sandbox.nix"
        module.write_text(module.read_text() + "\n")
        assert len([p for p in rendered.problems(repo) if "stale" in p]) == len(rendered.HOSTS)

    def test_a_new_host_file_is_noticed(self, repo: Path) -> None:
        (repo / "hosts/more.nix").write_text("{ }\n")
        assert any("stale" in problem for problem in rendered.problems(repo))

    def test_an_edit_by_hand_is_noticed(self, repo: Path) -> None:
        unit = repo / rendered.TREE / "test/units/agent-box-bob.service"
        unit.write_text(unit.read_text().replace("NoNewPrivileges=true", "NoNewPrivileges=false"))
        assert any("by hand" in problem for problem in rendered.problems(repo))

    def test_a_missing_tree_is_noticed(self, repo: Path) -> None:
        shutil.rmtree(repo / rendered.TREE / "vm")
        assert any("vm is missing" in problem for problem in rendered.problems(repo))

    def test_check_names_the_remedy(self, repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
        shutil.rmtree(repo / rendered.TREE / "vm")
        assert rendered.main(["--check", "--repo", str(repo)]) == 1
        assert "scripts/render --nixpkgs" in capsys.readouterr().err

    def test_written_tree_reads_back_without_difference(self, tmp_path: Path) -> None:
        evaluated = {
            "units": {"a.service": "ExecStart=/nix/store/" + "0" * 32 + "-a-1/bin/a\n"},
            "wants": {"a.service": ["multi-user.target"]},
            "etc": {"b.json": '{"b":1}', "c": "text"},
            "accounts": {"users": [], "groups": []},
        }
        files = rendered.tree_of("h", evaluated, rendered.sources_digest(tmp_path))
        rendered.write_tree(tmp_path / rendered.TREE / "h", files)
        assert rendered.problems(tmp_path, ["h"]) == []
        assert rendered.differences(tmp_path, "h", evaluated) == []
        evaluated["units"]["a.service"] = "changed"
        assert rendered.differences(tmp_path, "h", evaluated) == [
            "manifest.json",
            "units/a.service",
        ]


NIX = os.environ.get("AGENT_BOX_NIX_INSTANTIATE", "nix-instantiate")
NIXPKGS = os.environ.get("AGENT_BOX_NIXPKGS", "<nixpkgs>")


@pytest.mark.skipif(
    shutil.which(shlex.split(NIX)[0]) is None,
    reason="needs Nix: install it, or set AGENT_BOX_NIX_INSTANTIATE and AGENT_BOX_NIXPKGS",
)
@pytest.mark.parametrize("what", ["assertions", "contract.nix"])
def test_nothing_is_wrong_with_options(what: str) -> None:
    """Bad ones are refused with their remedy; names and defaults are those that configs rely on."""
    command = [*shlex.split(NIX), "--eval", "--strict", "--json", f"nixos-tests/{what}"]
    command += ["--arg", "nixpkgs", NIXPKGS]
    result = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    assert json.loads(result.stdout) == []
