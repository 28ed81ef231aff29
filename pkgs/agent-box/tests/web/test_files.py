"""Downloads that never run and never lead out."""

from __future__ import annotations

import os
import socket

import pytest


@pytest.fixture
def downloads(web):
    path = web.home / "downloads"
    path.mkdir()
    return path


def test_the_list(web, downloads):
    assert web.get("api/downloads").json() == {"entries": []}
    (downloads / "a <b>&.txt").write_text("x" * 3000)
    (downloads / ".hidden").write_text("x")
    (downloads / "more").mkdir()
    (downloads / "more/é.bin").write_bytes(b"y")
    found = {entry["name"]: entry for entry in web.get("api/downloads").json()["entries"]}
    assert found.keys() == {"a <b>&.txt", "more"}
    assert found["a <b>&.txt"]["size"] == 3000
    assert found["more"]["directory"]
    inner = web.get("api/downloads/more/").json()["entries"]
    assert [entry["name"] for entry in inner] == ["é.bin"]
    assert web.get("downloads/more/%C3%A9.bin").content == b"y"
    assert web.get("downloads/more", allow_redirects=False).headers["location"].endswith("/more/")
    assert web.get("downloads/.hidden").status_code == 404
    for path in ("api/downloads/none/", "api/downloads/more", "api/downloads/../"):
        assert web.get(path).status_code == 404, path


@pytest.mark.parametrize("name", ["evil.html", "x.svg", "x.xhtml", "x.js", "x.pdf", "noending"])
@pytest.mark.parametrize("query", ["", "?view"])
def test_nothing_runs(web, downloads, name, query):
    (downloads / name).write_text("<script>alert(1)</script>")
    answer = web.get(f"downloads/{name}{query}", headers={"Accept": "text/html"})
    assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert answer.headers["x-content-type-options"] == "nosniff"
    kind = answer.headers["content-type"]
    assert kind == ("text/plain; charset=utf-8" if query else "application/octet-stream")
    assert answer.headers["content-disposition"].startswith("inline" if query else "attachment")


def test_a_name_does_not_read_backwards(web, downloads):
    (downloads / "a\u202egpj.exe").write_text("x")
    header = web.get("downloads/a%E2%80%AEgpj.exe").headers["content-disposition"]
    assert header.endswith("filename*=UTF-8''agpj.exe")
    (downloads / os.fsdecode(b"\xff.bin")).write_text("x")
    assert "%FF.bin" in web.get("downloads/%FF.bin").headers["content-disposition"]


def test_no_link_is_followed(web, downloads):
    (web.home / "secret").write_text("secret")
    (web.home / "dir").mkdir()
    (web.home / "dir/inner").write_text("secret")
    (downloads / "passwd").symlink_to("/etc/passwd")
    (downloads / "near").symlink_to(web.home / "secret")
    (downloads / "dir").symlink_to(web.home / "dir")
    os.mkfifo(downloads / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(downloads / "sock"))
    for path in (
        "passwd",
        "near",
        "dir",
        "dir/inner",
        "pipe",
        "sock",
        "sock?view",
        "..%2fsecret",
        "%2e%2e/secret",
        "a%00b",
    ):
        assert web.raw(f"/{web.stand.user}/downloads/{path}").split()[1] == b"404", path
    for name in ("dir", "sock", "pipe"):
        assert web.get(f"api/downloads/{name}/").status_code == 404
    listed = [entry["name"] for entry in web.get("api/downloads").json()["entries"]]
    assert listed == []


def test_downloads_itself_a_link(web):
    (web.home / "downloads").symlink_to("/etc")
    assert "passwd" not in web.get("api/downloads").text
    assert web.get("downloads/passwd").status_code == 404


def test_a_part_of_a_file(web, downloads):
    content = os.urandom(700_000)
    (downloads / "x.bin").write_bytes(content)
    whole = web.get("downloads/x.bin")
    assert whole.content == content
    tag = whole.headers["etag"]
    part = web.get("downloads/x.bin", headers={"Range": "bytes=1000-1999", "If-Range": tag})
    assert (part.status_code, part.content) == (206, content[1000:2000])
    assert part.headers["content-range"] == "bytes 1000-1999/700000"
    assert web.get("downloads/x.bin", headers={"Range": "bytes=-5"}).content == content[-5:]
    assert web.get("downloads/x.bin", headers={"Range": "bytes=699999-"}).content == content[-1:]
    assert web.get("downloads/x.bin", headers={"Range": "bytes=700000-"}).status_code == 416
    assert web.get("downloads/x.bin", headers={"Range": "bytes=5-2"}).status_code == 416
    other = web.get("downloads/x.bin", headers={"Range": "bytes=0-1", "If-Range": '"old"'})
    assert other.status_code == 200
    assert web.get("downloads/x.bin", headers={"If-None-Match": tag}).status_code == 304
    assert (
        web.session.head(f"{web.stand.base}/downloads/x.bin").headers["content-length"] == "700000"
    )


def test_removing_downloads(web, downloads):
    (downloads / "x").write_text("x")
    (downloads / "dir").mkdir()
    (web.home / "kept").write_text("x")
    (downloads / "link").symlink_to(web.home / "kept")
    assert web.call("DELETE", "downloads/x").status_code == 200
    for path in ("x", "dir", "link", "..%2Fkept", "%2E%2E/kept"):
        raw = web.raw(
            f"/{web.stand.user}/api/downloads/{path}",
            "DELETE",
            f"Origin: {web.stand.origin}\r\nContent-Type: application/json\r\n"
            "Content-Length: 0\r\n",
        )
        assert raw.split()[1] in (b"404", b"403"), path
    assert (web.home / "kept").exists()
    assert (downloads / "dir").is_dir()
