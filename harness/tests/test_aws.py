"""The CloudFormation templates: what they name exists, and what a machine runs first, with
stand-ins for the programs that would change it."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

REPO = Path(__file__).resolve().parents[2]
FOLDER = REPO / "hosts" / "aws"
TEMPLATES = ("ec2", "lightsail")
HANDLE = "https://handle.example/stack?Signature=a%2Fb&Expires=1"
FLAKE = "github:somebody/box-of-theirs/v1.2"
VALUES = {"UserName": "alice", "Agent": "codex", "Flake": FLAKE}
HOST = "203.0.113.7.sslip.io"

RECORD = """\
#!/bin/sh
printf '%s' "${0##*/}" >>"$RECORD"
for word in "$@"; do printf '\\t%s' "$word" >>"$RECORD"; done
printf '\\n' >>"$RECORD"
"""
STANDINS = {
    "apt-get": "",
    "curl": 'case "$*" in *checkip*) echo 203.0.113.7;; esac',
    "fallocate": "",
    "findmnt": 'case "$*" in *UUID*/boot/efi) exit 1;; *UUID*/boot) echo 22-B;; *UUID*) echo 11-A;;'
    " *FSTYPE*) echo ext4;; *SOURCE*) echo /dev/xvda1;; esac",
    "lsblk": "echo xvda",
    "mkswap": "",
    # Does not write over a file that somebody has changed.
    "nix": """case "$*" in
*"flake init"*) for it in "$TEMPLATE"/*; do
  [ ! -e "${it##*/}" ] || cmp -s "$it" "${it##*/}" || exit 1
  cp "$it" .
done;;
*build*) mkdir -p "$3/bin"; ln -sf "$STANDINS/switch-to-configuration" "$3/bin/";;
esac""",
    "nixos-rebuild": "",
    "reboot": "",
    "sleep": "",
    "swapon": "",
    "switch-to-configuration": "",
    "uname": "echo aarch64",
}


class Loader(yaml.SafeLoader):
    """Reads the short forms of CloudFormation's functions, as `{"Fn::Sub": …}`."""


def _function(loader: Loader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    name = suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}"
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
        return {name: value.split(".", 1) if suffix == "GetAtt" else value}
    if isinstance(node, yaml.SequenceNode):
        return {name: loader.construct_sequence(node, deep=True)}
    return {name: loader.construct_mapping(node, deep=True)}


Loader.add_multi_constructor("!", _function)


def template(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load((FOLDER / f"{name}.yaml").read_text(), Loader)
    return found


def named(value: Any, inner: frozenset[str] = frozenset()) -> set[tuple[str, str]]:
    """Return (function, name) for whatever a part of a template refers to."""
    if isinstance(value, list):
        return set().union(*(named(each, inner) for each in value)) if value else set()
    if not isinstance(value, dict):
        return set()
    found: set[tuple[str, str]] = set()
    for key, argument in value.items():
        if key == "Ref":
            found.add(("Ref", argument))
        elif key == "Fn::GetAtt":
            found.add(("Ref", argument[0]))
        elif key == "Condition" and isinstance(argument, str):
            found.add(("Condition", argument))
        elif key == "Fn::If":
            found |= {("Condition", argument[0])} | named(argument[1:], inner)
        elif key == "Fn::Sub":
            text, local = argument if isinstance(argument, list) else (argument, {})
            names = set(re.findall(r"\$\{([^!}][^}]*)\}", text)) - local.keys()
            found |= {("Ref", name.split(".")[0]) for name in names} | named(local, inner)
        elif key == "DependsOn":
            each = argument if isinstance(argument, list) else [argument]
            found |= {("Ref", name) for name in each}
        else:
            found |= named(argument, inner)
    return found


@pytest.mark.parametrize("name", TEMPLATES)
def test_whatever_is_named_exists_and_is_used(name: str) -> None:
    found = template(name)
    parts = {key: found[key] for key in ("Conditions", "Resources", "Outputs") if key in found}
    references = named(parts)
    names = {name for kind, name in references if kind == "Ref" and not name.startswith("AWS::")}
    assert names <= found["Parameters"].keys() | found["Resources"].keys()
    assert found["Parameters"].keys() <= names
    assert {name for kind, name in references if kind == "Condition"} == found["Conditions"].keys()
    shown = found["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    listed = [parameter for group in shown for parameter in group["Parameters"]]
    assert sorted(listed) == sorted(found["Parameters"])


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_lands_in_a_file_is_of_harmless_characters(name: str) -> None:
    """Parameters are written into JSON and shell as they are."""
    parameters = template(name)["Parameters"]
    spliced = set(re.findall(r"\$\{(\w+)\}", user_data(name)[0])) & parameters.keys()
    for each in spliced:
        assert {"AllowedPattern", "AllowedValues"} & parameters[each].keys(), each
        pattern = parameters[each].get("AllowedPattern")
        for bad in ("'", '"', "\\", "$", "`", "\n", " ", "|"):
            assert pattern is None or not re.fullmatch(pattern, f"a{bad}"), each


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_machine_is_launched_with_no_secret(name: str) -> None:
    """User data can be read as long as the machine exists, by root and in the account. Nothing of
    it lets anybody in: no parameter is secret, and all that is not plain is the handle, by which
    the stack is told once how the launch ended.
    """
    found = template(name)
    assert [key for key, each in found["Parameters"].items() if "NoEcho" in each] == []
    for kind in ("AWS::SecretsManager::", "AWS::SSM::"):
        assert not any(each["Type"].startswith(kind) for each in found["Resources"].values())
    text, local = user_data(name)
    assert "resolve:" not in json.dumps([text, local])
    names = {reference for _, reference in named({"Fn::Sub": [text, local]})}
    harmless = {"UserName", "Agent", "Flake", "Domain", "Address", "Interface"}
    conditions = {"HasDomain", "HasIpv4", "Translated"}
    assert {each for each in names if not each.startswith("AWS::")} <= {
        *harmless,
        *conditions,
        "DoneHandle",
    }


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_code_of_the_box_is_in_the_outputs(name: str) -> None:
    """What the box said as `Data` is one member of an object that CloudFormation makes of it."""
    output = template(name)["Outputs"]["SetupCode"]["Value"]
    index, of = output["Fn::Select"]
    separator, data = of["Fn::Split"]
    assert data == {"Fn::GetAtt": ["Done", "Data"]}
    said = json.dumps({"first-boot": "0123-4567-89AB-CDEF"}, separators=(",", ":"))
    assert said.split(separator)[index] == "0123-4567-89AB-CDEF"


def test_credentials_of_the_machine_stay_on_the_machine() -> None:
    """Its metadata answers with a token alone, which goes over no address translation."""
    resources = template("ec2")["Resources"]
    options = resources["Launch"]["Properties"]["LaunchTemplateData"]["MetadataOptions"]
    assert (options["HttpTokens"], options["HttpPutResponseHopLimit"]) == ("required", 1)
    (policy,) = resources["Role"]["Properties"]["Policies"]
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert {each.split(":")[0] for each in statement["Action"]} == {"ssm", "ssmmessages"}
    assert not any("Get" in each for each in statement["Action"])


def user_data(name: str) -> tuple[str, dict[str, Any]]:
    """Return the script and the values of a template, before either is known."""
    data = template(name)["Resources"]["Instance"]["Properties"]["UserData"]
    sub = data.get("Fn::Base64", data)
    text, local = sub["Fn::Sub"]
    return text, local


def script(name: str, translated: str = "false") -> str:
    """Return what a machine runs, as CloudFormation would make it."""
    text, _ = user_data(name)
    values = VALUES | {
        "Done": HANDLE,
        "Host": HOST,
        "Translated": translated,
    }
    return re.sub(r"\$\{(\w+)\}", lambda match: values[match[1]], text)


class Machine:
    """A folder in place of a machine's root, with stand-ins for its programs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.programs = root / "standins"
        self.programs.mkdir()
        self.record = root / "record"
        for program, body in STANDINS.items():
            self.set(program, body)
        for folder in ("etc", "var/log", "home/ubuntu/.ssh"):
            (root / folder).mkdir(parents=True)
        keys = self.root / "home/ubuntu/.ssh/authorized_keys"
        keys.write_text('# none\nssh-rsa AAAA key of "me"\nssh-ed25519 AAAB me@here\n')
        (root / "swapfile").touch()

    def set(self, program: str, body: str) -> None:
        path = self.programs / program
        path.write_text(f"{RECORD}{body}\n")
        path.chmod(0o755)

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        here = re.sub(r"(?<![\w/.*])/(etc|var|home|nix|sys|swapfile)\b", rf"{self.root}/\1", text)
        environment = {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "RECORD": str(self.record),
            "STANDINS": str(self.programs),
            "TEMPLATE": str(FOLDER / "template"),
        }
        return subprocess.run(
            ["bash"], input=here, env=environment, text=True, capture_output=True, check=False
        )

    def calls(self) -> list[list[str]]:
        lines = self.record.read_text().splitlines()
        return [line.replace(str(self.root), "").split("\t") for line in lines]

    def told(self) -> list[dict[str, str]]:
        found = [call for call in self.calls() if call[0] == "curl" and "PUT" in call]
        for call in found:
            assert call[-1] == HANDLE
            # As the URL is signed.
            assert call[call.index("--header") + 1] == "Content-Type:"
        return [json.loads(call[call.index("--data") + 1]) for call in found]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_scripts_are_clean(name: str) -> None:
    subprocess.run(["shellcheck", "-"], input=script(name), text=True, check=True)


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_handle_is_in_one_file_alone(machine: Machine, name: str) -> None:
    """Neither in a folder that becomes part of the store, nor in the arguments of a program."""
    done = machine.run(script(name))
    assert done.returncode == 0, done.stderr
    folder = machine.root / "var/lib/agent-box-launch"
    assert [each.name for each in folder.iterdir()] == ["signal"]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "signal").stat().st_mode & 0o777 == 0o600
    assert (folder / "signal").read_text() == f"{HANDLE}\n"
    for path in machine.root.rglob("*"):
        if path.is_file() and path.parent not in (folder, machine.programs):
            assert HANDLE not in path.read_text(), path


def test_a_machine_of_ec2_becomes_a_box(machine: Machine) -> None:
    assert len(base64.b64encode(script("ec2").encode())) < 16 * 1024
    for _ in range(2):  # again after a power cut in the middle
        done = machine.run(script("ec2", translated="true"))
        assert done.returncode == 0, done.stderr
    nixos = machine.root / "etc/nixos"
    assert FLAKE in (nixos / "flake.nix").read_text()
    assert "OWNER" not in (nixos / "flake.nix").read_text()
    assert json.loads((nixos / "launch.json").read_text()) == {
        "provider": "aws",
        "system": "aarch64-linux",
        "domain": HOST,
        "user": "alice",
        "agent": "codex",
        "nat64": True,
    }
    assert machine.calls()[-1] == ["nixos-rebuild", "switch", "--flake", "/etc/nixos#box"]
    assert machine.told() == []
    assert (machine.root / "etc/resolv.conf").read_text().count("nameserver") == 3


@pytest.mark.parametrize("efi", [False, True])
def test_a_machine_of_lightsail_becomes_a_box(machine: Machine, efi: bool) -> None:
    if efi:
        (machine.root / "sys/firmware/efi").mkdir(parents=True)
    done = machine.run(script("lightsail"))
    assert done.returncode == 0, done.stderr
    assert json.loads((machine.root / "etc/nixos/launch.json").read_text()) == {
        "provider": "lightsail",
        "system": "aarch64-linux",
        "domain": HOST,
        "user": "alice",
        "agent": "codex",
        "sshKeys": ["ssh-ed25519 AAAB me@here"],
        "disk": None if efi else "/dev/xvda",
        "mounts": {
            "/": {"uuid": "11-A", "fsType": "ext4"},
            "/boot": {"uuid": "22-B", "fsType": "ext4"},
        },
    }
    kept = (machine.root / "etc/NIXOS_LUSTRATE").read_text().split()
    # Each is copied on the first boot.
    assert kept == ["etc/nixos", "var/lib/agent-box-launch", "var/log/agent-box-launch.log"]
    assert [call[0] for call in machine.calls()[-2:]] == ["switch-to-configuration", "reboot"]
    assert machine.calls()[-2][1:] == ["boot"]
    assert machine.told() == []


@pytest.mark.parametrize(
    ("name", "program"),
    [("ec2", "nix"), ("ec2", "nixos-rebuild"), ("lightsail", "apt-get"), ("lightsail", "nix")],
)
def test_a_launch_that_fails_is_told_so_at_once(machine: Machine, name: str, program: str) -> None:
    machine.set(program, "exit 3")
    assert machine.run(script(name)).returncode != 0
    assert "reboot" not in [call[0] for call in machine.calls()]
    (told,) = machine.told()
    assert told["Status"] == "FAILURE"
    line = int(told["Reason"].split()[1])
    assert program in script(name).splitlines()[line - 1]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_launch_says_what_the_module_knows(machine: Machine, name: str) -> None:
    machine.run(script(name))
    launch = json.loads((machine.root / "etc/nixos/launch.json").read_text())
    options = re.findall(
        r"^    (\w+) = mkOption", (REPO / "hosts/cloud.nix").read_text(), re.MULTILINE
    )
    assert launch.keys() <= set(options)
