"""Files in the browser: what an agent made never runs on the box's origin, nor leads elsewhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from agent_box_harness.edge import Ask, Edge, page_headers, with_cookie

if TYPE_CHECKING:
    from agent_box_harness.edge import Headers

pytestmark = [pytest.mark.limit(120), pytest.mark.renewed("module")]

SCRIPT = "<script>document.title = 'it ran'</script>"

PREPARE = f"""
mkdir -p ~/downloads/sub ~/.secret && cd ~/downloads && echo hidden >~/.secret/key
echo "{SCRIPT}" | tee evil.html evil.xhtml x.svg evil.html.txt sub/inner.html evil.pdf >/dev/null
ln -s /etc/passwd passwd
ln -s ~/.secret/key key
ln -s /home/bob/private theirs
ln -s ~/.secret folder
ln -s / root
mkfifo pipe
echo dot >.dotfile
echo mine | tee ~/.bashrc >~/.profile
"""
LEADING_OUT = ("passwd", "key", "theirs", "folder/key", "folder/", "root/etc/passwd", "root/",
               "pipe", ".dotfile", "../.secret/key", "%2e%2e/.secret/key", "sub/../../.secret/key",
               "sub%2f..%2f..%2f.secret%2fkey", "/etc/passwd", "%2fetc%2fpasswd")  # fmt: skip
SECRETS = ("root:x:0", "hidden", "of bob", "dot\n")


@pytest.fixture
def cookie(edge: Edge) -> Headers:
    box = edge.box
    box.as_user("alice", "rm -rf ~/downloads ~/.secret ~/uploads").check()
    box.as_user("alice", PREPARE).check()
    # Readable to all, so that only the service's own care keeps it in.
    box.succeed("echo 'of bob' >/home/bob/private && chmod 0644 /home/bob/private")
    return with_cookie(edge.sign_in("alice"))


def test_nothing_runs(edge: Edge, cookie: Headers) -> None:
    """Pages and pictures with scripts are attachments in a sandbox, of no type that runs."""
    names = ("evil.html", "evil.xhtml", "x.svg", "evil.html.txt", "sub/inner.html", "evil.pdf")
    asks = [Ask(f"/alice/downloads/{name}{view}", headers=cookie)
            for name in names for view in ("", "?view", "?view&type=text/html")]  # fmt: skip
    for ask, answer in zip(asks, edge.ask(asks), strict=True):
        assert answer.status == 200, ask
        assert SCRIPT in answer.body, ask
        (policy,) = answer.all("content-security-policy")
        assert policy.startswith("sandbox; default-src 'none'"), ask
        assert answer.all("x-content-type-options") == ["nosniff"], ask
        (kind,) = answer.all("content-type")
        (disposition,) = answer.all("content-disposition")
        if "?view" in ask.target:
            assert kind == "text/plain; charset=utf-8", ask
        else:
            assert (kind, disposition[:10]) == ("application/octet-stream", "attachment"), ask


def test_nothing_leads_out(edge: Edge, cookie: Headers) -> None:
    """Symbolic links are not followed, whoever's file they name; no spelling leaves the folder."""
    # Of what ends with a slash the page is the edge's, and the list the service's.
    files = [name for name in LEADING_OUT if not name.endswith("/")]
    asks = [Ask(f"/alice/downloads/{name}", headers=cookie) for name in files]
    asks += [Ask(f"/alice/api/downloads/{name}", headers=cookie) for name in LEADING_OUT]
    asks += [Ask(f"/alice/api/downloads/{name}", "DELETE", page_headers(edge, cookie))
             for name in LEADING_OUT]  # fmt: skip
    for ask, answer in zip(asks, edge.ask(asks), strict=True):
        assert answer.status in (400, 403, 404), (ask, answer.status)
        assert not [secret for secret in SECRETS if secret in answer.body], ask
    (listed,) = edge.ask([Ask("/alice/api/downloads", headers=cookie)])
    names = {entry["name"] for entry in json.loads(listed.body)["entries"]}
    assert names == {"evil.html", "evil.xhtml", "x.svg", "evil.html.txt", "sub", "evil.pdf"}
    edge.box.succeed("test -e /home/alice/.secret/key && test -e /etc/passwd")


def test_uploads(edge: Edge, cookie: Headers) -> None:
    """An upload lands in its folder, private, under a name that says nothing else; one through a
    link is refused, and so is one from a page of another site.
    """
    box = edge.box
    binary = page_headers(edge, cookie, "application/octet-stream")
    names = ("../../.bashrc", "..", ".hidden", "a/b", "%2e%2e%2f.profile", "plan.txt", "plan.txt")
    asks = [
        Ask(f"/alice/api/uploads/{name.replace('/', '%2f')}", "PUT", binary, "x") for name in names
    ]
    answers = edge.ask(asks)
    assert [answer.status for answer in answers[-2:]] == [201, 201]
    assert len({json.loads(answer.body)["path"] for answer in answers[-2:]}) == 2
    for answer in answers:
        assert answer.status in (201, 400, 404), answer
    found = box.succeed("find /home/alice/uploads -printf '%P %m %u\\n'").splitlines()
    assert {line.split(" ", 1)[1] for line in found if line[0] != " "} == {"600 alice"}
    assert not [line for line in found if "/" in line or line.startswith(".")], found
    assert box.succeed("cat /home/alice/.bashrc /home/alice/.profile") == "mine\n" * 2

    box.as_user("alice", "rm -rf ~/uploads && mkdir ~/elsewhere && ln -s ~/elsewhere ~/uploads")
    foreign = (*cookie, ("Origin", "https://evil.test"), ("Sec-Fetch-Site", "cross-site"),
               ("Content-Type", "application/octet-stream"))  # fmt: skip
    refused = edge.ask(
        [Ask("/alice/api/uploads/y", "PUT", headers, "x") for headers in (binary, foreign)]
    )
    assert [answer.status for answer in refused] == [409, 403]
    assert box.succeed("ls -A /home/alice/elsewhere") == ""
