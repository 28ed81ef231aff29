"""The vocabulary of sites: publish something, declare a list by hand, look at the result."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_box_harness.box import Box


def network(box: Box, user: str) -> str | None:
    """Return the network namespace that a user has alone, if any."""
    found: str | None = box.document["users"][user].get("network")
    return found


def serve(box: Box, user: str, unit: str, command: str, port: int) -> None:
    """Have a program of the user listen, where programs of the user's sessions do."""
    where = network(box, user)
    option = f"-p NetworkNamespacePath={where} " if where else ""
    box.succeed(f"systemd-run --quiet --uid={user} --unit={unit} {option}{command}")
    inside = f"nsenter --net={where} " if where else ""
    box.wait_for(f"port {port}", lambda: box.run(f"{inside}ss -ltn | grep -q ':{port} '").rc == 0)


def listen(box: Box, user: str, port: int, address: str = "127.0.0.1") -> None:
    """Have a program of the user answer every request with what it was asked."""
    program = (
        "import http.server as h\n"
        "class H(h.BaseHTTPRequestHandler):\n"
        "  def do_GET(self):\n"
        f"    text = '{user} {port}\\n' + str(self.headers)\n"
        "    self.send_response(200)\n"
        "    self.send_header('Set-Cookie', 'a=b; Domain=box.test; Path=/')\n"
        "    self.end_headers(); self.wfile.write(text.encode())\n"
        "  do_POST = do_GET\n"
        f"class S(h.HTTPServer): address_family = {10 if ':' in address else 2}\n"
        f"S(('{address}', {port}), H).serve_forever()\n"
    )
    path = f"/opt/site-{user}-{port}.py"
    box.machine.write_file(path, program.encode(), mode=0o644)
    serve(box, user, f"site-{user}-{port}", f"python3 {path}", port)


def curl(box: Box, host: str, path: str = "/", options: str = "") -> tuple[int, str]:
    """Return status and body (headers before it) of a site's answer; 0 without any."""
    seconds = box.machine.scaled(10)
    command = (
        f"curl -ski --max-time {seconds} --path-as-is --resolve {host}:443:127.0.0.1 {options}"
        f" -w '\\n%{{http_code}}' 'https://{host}{path}'"
    )
    out = box.run(command).out
    body, _, code = out.rpartition("\n")
    return int(code or 0), body


def add(box: Box, user: str, arguments: str) -> dict[str, Any]:
    """Add a site the way an agent does, in its sandbox."""
    afresh(box)
    result = box.in_session(user, f"agent-box-site add {arguments} --json").check(arguments)
    found: dict[str, Any] = json.loads(result.out)
    return found


def listing(box: Box, user: str) -> dict[str, Any]:
    """Return what the user is told of the list."""
    found: dict[str, Any] = json.loads(
        box.as_user(user, "agent-box-site ls --json").check("ls").out
    )
    return found


def afresh(box: Box) -> None:
    """Give users their whole share of changes again."""
    box.succeed("systemctl stop agent-box-sites.service", "rm -f /run/agent-box-sites/pace.json")


def declare(box: Box, user: str, text: str) -> dict[str, Any]:
    """Write the user's file by hand and return the listing when it has been looked at."""
    afresh(box)
    path = f"{box.home(user)}/.config/agent-box/sites.json"
    box.as_user(user, f"cat >{path}.new && mv {path}.new {path}", stdin=text).check("write")
    command = (
        f"sha256sum <{path} | cut -c1-64 | xargs -I@ grep -q @ /run/agent-box-sites/{user}.json"
    )
    box.wait_for("the helper", lambda: box.run(command).rc == 0)
    return listing(box, user)
