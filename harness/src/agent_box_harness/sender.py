"""A sender of webhooks, as GitHub is one: it signs, and delivers through the edge over TLS."""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import shlex
from typing import TYPE_CHECKING, Any

from agent_box_harness.edge import Ask, Edge
from agent_box_harness.errors import RequestFailedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_box_harness.box import Box
    from agent_box_harness.edge import Answer


class Sender:
    """GitHub, as far as this box is concerned. `user` is whose endpoint it knows."""

    def __init__(self, box: Box, user: str) -> None:
        self.box, self.user = box, user
        self.secret = ""

    @functools.cached_property
    def edge(self) -> Edge:
        """The way in for everybody."""
        return Edge(self.box)

    def set_up(self) -> None:
        """Have the agent mint the secret, and learn it."""
        found = json.loads(self.do("setup --json").out)
        self.secret = found["secret"]
        wanted = f"https://{self.edge.domain}/{self.user}/webhook/github"
        if found["url"] != wanted:
            raise RequestFailedError(f"senders are told of {found['url']}, not of {wanted}")

    def do(self, arguments: str, session: str = "main") -> Any:
        """Run the command the way an agent does, inside a session."""
        key = self.variables(session)["LOCAL_WEBHOOK_SESSION"]
        command = f"LOCAL_WEBHOOK_SESSION={key} agent-box-webhook {arguments}"
        return self.box.in_session(self.user, command).check(arguments)

    def variables(self, session: str) -> dict[str, str]:
        """Return what the process of a session has in its environment."""
        pid = self.box.session(self.user, session)["pid"]
        lines = self.box.run(f"tr '\\0' '\\n' </proc/{pid}/environ").out.splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def ask(self, document: Any, event: str, **more: Any) -> Ask:
        """Return a delivery."""
        body = json.dumps(document)
        secret = more.get("secret", self.secret)
        signature = hmac.new(secret.encode(), body.encode(), hashlib.sha256).hexdigest()
        headers = (
            ("Content-Type", "application/json"),
            ("X-GitHub-Event", event),
            ("X-GitHub-Delivery", hashlib.sha256(body.encode()).hexdigest()[:32]),
            ("X-Hub-Signature-256", f"sha256={signature}"),
        )
        path = more.get("path", f"/{self.user}/webhook/github")
        return Ask(path, "POST", headers + more.get("headers", ()), body)

    def past_the_edge(self, asks: Sequence[Ask]) -> list[int]:
        """Deliver straight to the receiver, the way the edge does, and return the statuses.

        Costs a fraction of the way through the edge where the guest is emulated.
        """
        command = ["curl", "-s"]
        for ask in asks:
            path = ask.target.removeprefix(f"/{self.user}/webhook")
            headers = (*ask.headers, ("X-Forwarded-For", "192.0.2.1"))
            command += ["--unix-socket", f"/run/agent-box-webhook/{self.user}.sock"]
            command += [word for name, value in headers for word in ("-H", f"{name}: {value}")]
            command += ["-o", "/dev/null", "-w", "%{http_code}\n", "--data-binary", ask.body]
            command += [f"http://localhost{path}", "--next"]
        answers = self.box.as_user(self.user, shlex.join(command[:-1]), 120).check("curl").out
        return [int(line) for line in answers.splitlines()]

    def stripe(self, body: str, secret: str, moment: float) -> Ask:
        """Return what Stripe delivers, signed at a unix time."""
        signed = f"{int(moment)}.{body}".encode()
        mac = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
        headers = (("Stripe-Signature", f"t={int(moment)},v1={mac}"),)
        return Ask(f"/{self.user}/webhook/stripe", "POST", headers, body)

    def send(self, document: Any, event: str, **more: Any) -> Answer:
        """Deliver through the edge."""
        return self.edge.ask([self.ask(document, event, **more)])[0]


def issue(number: int, **more: Any) -> dict[str, Any]:
    """Return what GitHub says when rosa opens an issue."""
    return {
        "action": "opened",
        "issue": {"number": number, "title": f"Broken {number}"},
        "repository": {"full_name": "acme/widgets"},
        "sender": {"login": "rosa"},
        **more,
    }
