"""Uploads arrive whole or not at all, and go on where a broken connection left them."""

from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import os
import socket
import threading
import time

import pytest

from agent_box.web import receiving
from agent_box.web.answers import Refusal
from agent_box.web.uploads import ABANDONED, MOST_BEGUN, Uploads, clean_name


def upload(web, name, data, **headers):
    kind = {"Content-Type": "application/octet-stream", **headers}
    return web.call("PUT", f"uploads/{name}", data=data, headers=kind)


def test_uploads_keep_their_name_or_get_a_similar_one(web):
    content = os.urandom(3_000_000)
    stored = upload(web, "a%20b.tar.gz", content)
    assert stored.status_code == 201
    assert stored.json() == {
        "name": "a b.tar.gz",
        "path": "~/uploads/a b.tar.gz",
        "size": 3_000_000,
    }
    assert (web.home / "uploads/a b.tar.gz").read_bytes() == content
    assert upload(web, "a%20b.tar.gz", b"2").json()["name"] == "a b.tar-2.gz"
    assert (web.home / "uploads/a b.tar.gz").read_bytes() == content
    assert upload(web, "empty", b"").json()["size"] == 0
    assert {path.name[0] for path in (web.home / "uploads").iterdir()} <= {"a", "e"}
    assert web.get("api/uploads").json()["used"] == 3_000_001
    assert web.call("DELETE", "uploads/empty").status_code == 200


@pytest.mark.parametrize("name", ["..", ".ssh", "", "a\nb", "a\0b", "x" * 201, "\ud800", "dir/"])
def test_names_that_an_upload_cannot_have(name):
    with pytest.raises(Refusal):
        clean_name(name)


def test_names_lose_their_directory(web):
    assert clean_name("C:\\Users\\me\\x.txt") == "x.txt"
    assert upload(web, "a/b", b"x").status_code == 400
    assert upload(web, "a%2Fb", b"x").json()["name"] == "b"


def test_more_than_fits(web):
    big = upload(web, "big", b"x" * (51 << 20))
    assert big.status_code == 413
    assert big.json()["error"]["code"] == "full"
    assert list((web.home / "uploads").iterdir()) == []

    assert upload(web, "big", iter([b"x"])).status_code == 411  # no length announced
    assert list((web.home / "uploads").iterdir()) == []


def test_an_upload_that_breaks_off_leaves_nothing(web):
    head = (
        f"PUT /{web.stand.user}/api/uploads/x HTTP/1.1\r\nHost: x\r\nOrigin: {web.stand.origin}\r\n"
        "Content-Type: application/octet-stream\r\nContent-Length: 1000000\r\n\r\n"
    )
    with socket.create_connection(web.stand.listener.getsockname()) as link:
        link.sendall(head.encode() + b"x" * 500_000)
        time.sleep(0.3)
    deadline = time.monotonic() + 5
    while list((web.home / "uploads").iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_uploads_never_follow_a_link(web):
    (web.home / "elsewhere").mkdir()
    (web.home / "uploads").symlink_to(web.home / "elsewhere")
    assert upload(web, "x", b"x").status_code == 409
    assert list((web.home / "elsewhere").iterdir()) == []


def test_two_of_one_name_at_once(web):
    names = []
    threads = [
        threading.Thread(target=lambda: names.append(upload(web, "same.txt", b"x").json()["name"]))
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(names)) == 5


class Client:
    """Speaks tus 1.0.0."""

    def __init__(self, web):
        self.web = web

    def ask(self, method, path="", **headers):
        data = headers.pop("data", None)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        address = path or f"/{self.web.stand.user}/api/partial-uploads"
        root = self.web.stand.base.rpartition("/")[0]
        return self.web.session.request(
            method,
            root + address,
            headers={**self.web.own, "Tus-Resumable": "1.0.0", **named},
            data=data,
            timeout=30,
        )

    def create(self, name, size):
        encoded = base64.b64encode(name.encode()).decode()
        return self.ask(
            "POST", Upload_Length=str(size), Upload_Metadata=f"filename {encoded},type eA=="
        )

    def patch(self, place, offset, data):
        return self.ask(
            "PATCH",
            place,
            Upload_Offset=str(offset),
            Content_Type="application/offset+octet-stream",
            data=data,
        )

    def break_off(self, place, offset, sent, announced, more=""):
        """Send a part of what is announced, and hang up."""
        link = self.web.stand.listener.getsockname()
        head = (
            f"PATCH {place} HTTP/1.1\r\nHost: x\r\nOrigin: {self.web.stand.origin}\r\n"
            "Tus-Resumable: 1.0.0\r\nContent-Type: application/offset+octet-stream\r\n"
            f"Upload-Offset: {offset}\r\nContent-Length: {announced}\r\n{more}\r\n"
        )
        connection = socket.create_connection(link)
        connection.sendall(head.encode() + sent)
        return connection


@pytest.fixture
def tus(web):
    return Client(web)


def hidden(web):
    return [path for path in (web.home / "uploads").iterdir() if path.name.startswith(".")]


def test_an_upload_goes_on_where_it_ended(web, tus):
    content = os.urandom(900_000)
    made = tus.create("größer.bin", len(content))
    assert made.status_code == 201
    place = made.headers["Location"]
    tus.break_off(place, 0, content[:400_000], len(content)).close()
    time.sleep(0.3)
    # To ask ends the request that may still bring bytes: from here on the answer is true.
    told = tus.ask("HEAD", place)
    known = int(told.headers["Upload-Offset"])
    assert 0 < known <= 400_000
    assert told.headers["Upload-Length"] == str(len(content))
    assert told.headers["Cache-Control"] == "no-store"
    listing = web.get("api/uploads").json()
    assert [(each["name"], each["offset"]) for each in listing["partial"]] == [
        ("größer.bin", known)
    ]
    assert listing["entries"] == []
    assert listing["used"] == len(content)  # announced counts
    assert tus.patch(place, 0, content).status_code == 409
    assert tus.patch(place, known, content[known:] + b"x").status_code == 413
    done = tus.patch(place, known, content[known:])
    assert done.status_code == 204
    assert done.headers["Upload-Offset"] == str(len(content))
    assert done.headers["Content-Location"].endswith("/api/uploads/gr%C3%B6%C3%9Fer.bin")
    assert (web.home / "uploads/größer.bin").read_bytes() == content
    assert hidden(web) == []
    # The last answer may have been lost: asking again tells the same.
    again = tus.ask("HEAD", place)
    assert again.headers["Content-Location"] == done.headers["Content-Location"]
    assert again.headers["Upload-Offset"] == str(len(content))


def test_who_comes_back_need_not_wait_for_the_dead_connection(web, tus):
    content = os.urandom(500_000)
    place = tus.create("a", len(content)).headers["Location"]
    with tus.break_off(place, 0, content[:200_000], len(content)):  # says nothing more
        time.sleep(0.3)
        began = time.monotonic()
        known = int(tus.ask("HEAD", place).headers["Upload-Offset"])
        assert 0 < known <= 200_000
        assert tus.patch(place, known, content[known:]).status_code == 204
        assert time.monotonic() - began < 5
    assert (web.home / "uploads/a").read_bytes() == content


def test_a_complete_upload_replaces_nothing(web, tus):
    (web.home / "uploads").mkdir(mode=0o700, exist_ok=True)
    (web.home / "uploads/a.txt").write_text("old")
    place = tus.create("a.txt", 3).headers["Location"]
    assert tus.patch(place, 0, b"new").headers["Content-Location"].endswith("/a-2.txt")
    assert (web.home / "uploads/a.txt").read_text() == "old"
    empty = tus.create("empty", 0)
    assert empty.headers["Content-Location"].endswith("/empty")
    assert (web.home / "uploads/empty").read_bytes() == b""


def test_what_is_announced_counts_before_it_arrives(web, tus):
    assert tus.create("one", 40 << 20).status_code == 201
    refused = tus.create("two", 40 << 20)
    assert refused.status_code == 413
    assert refused.json()["error"]["code"] == "full"
    assert refused.headers["Tus-Resumable"] == "1.0.0"
    assert upload(web, "three", b"x" * (20 << 20)).status_code == 413


def test_how_many_can_be_begun(web, tus):
    """Their number is limited as well as their bytes; the others go on, and discarding helps."""
    places = [tus.create(f"f{n}", 1).headers["Location"] for n in range(MOST_BEGUN)]
    refused = tus.create("more", 1)
    assert refused.status_code == 429
    assert "discard some" in refused.json()["error"]["message"]
    assert upload(web, "whole", b"x").status_code == 429
    assert tus.patch(places[0], 0, b"x").status_code == 204
    assert tus.create("more", 1).status_code == 201


def test_what_is_no_file_is_no_upload(web, tus):
    """A pipe in the place of an upload hangs nobody."""
    place = tus.create("a", 100).headers["Location"]
    (left,) = hidden(web)
    left.unlink()
    os.mkfifo(left)
    assert tus.patch(place, 0, b"x").status_code == 404
    assert tus.ask("HEAD", place).status_code == 404
    assert web.get("api/uploads").json()["partial"] == []


def test_giving_up_and_being_given_up(web, tus):
    place = tus.create("a", 100).headers["Location"]
    assert tus.ask("DELETE", place).status_code == 204
    assert tus.ask("HEAD", place).status_code == 404
    assert tus.patch(place, 0, b"x").status_code == 404
    tus.create("b", 100)
    (left,) = hidden(web)
    old = time.time() - ABANDONED - 60
    os.utime(left, (old, old))
    assert web.get("api/uploads").json()["partial"] == []
    assert hidden(web) == []


def test_the_protocol_is_spoken_or_refused(web, tus):
    options = tus.ask("OPTIONS")
    assert options.status_code == 204
    assert options.headers["Tus-Version"] == "1.0.0"
    place = tus.create("a", 100).headers["Location"]
    assert tus.ask("HEAD", place, Tus_Resumable="0.2.0").status_code == 412
    assert tus.ask("POST", Upload_Length="-1").status_code == 400
    assert tus.ask("POST", Upload_Length="5").status_code == 400  # no name
    assert tus.ask("POST", Upload_Length="5", Upload_Metadata="filename ?").status_code == 400
    assert tus.create("../x", 5).status_code == 201  # the last part counts
    assert tus.create(".ssh", 5).status_code == 400
    # A form of another site can send none of this.
    foreign = web.call("POST", "partial-uploads", headers={"Origin": "https://evil.example"})
    assert foreign.status_code == 403
    plain = web.call("POST", "partial-uploads", headers={"Content-Type": "text/plain"})
    assert plain.status_code == 415
    typed = tus.ask("PATCH", place, Upload_Offset="0", Content_Type="text/plain", data=b"x")
    assert typed.status_code == 415


def beginning(path):
    """Return what a hidden file holds so far."""
    (left,) = (each for each in path.iterdir() if each.name.startswith("."))
    return left.read_bytes()


def test_stopping_while_the_disk_is_slow_writes_nothing_twice(tmp_path, monkeypatch):
    """What a thread writes goes on when the request is cancelled: it must not be written again."""
    content = os.urandom(3 << 20)
    slow, real, ended, late = threading.Event(), os.pwrite, threading.Event(), []

    def pwrite(descriptor, part, at):
        slow.set()
        time.sleep(0.05)
        if ended.is_set():
            late.append(at)
        return real(descriptor, part[: len(part) // 2 + 1], at)

    monkeypatch.setattr(receiving.os, "pwrite", pwrite)

    async def pieces():
        for start in range(0, len(content), 64 << 10):
            yield content[start : start + (64 << 10)]

    async def main():
        keeper = Uploads(tmp_path, spare=0)
        begun = keeper.create("a", len(content))
        request = asyncio.ensure_future(keeper.append(begun.id, 0, pieces()))
        await asyncio.to_thread(slow.wait)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        ended.set()
        kept = beginning(tmp_path / "uploads")
        assert content.startswith(kept)
        # The thread is done when the request is: the number of the file may be another's by now.
        await asyncio.sleep(0.3)
        assert late == []
        assert beginning(tmp_path / "uploads") == kept
        told = await keeper.progress(begun.id)
        assert told.offset == len(kept)

    asyncio.run(main())


def test_a_disk_that_fills_up_and_empties_writes_nothing_twice(tmp_path, monkeypatch):
    content = os.urandom(2 << 20)
    full, real = [True], os.pwrite

    def pwrite(descriptor, part, at):
        if at < 300_000:
            return real(descriptor, part[: 300_000 - at], at)
        if full:
            full.clear()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, part, at)

    monkeypatch.setattr(receiving.os, "pwrite", pwrite)

    async def pieces(start):
        yield content[start:]

    async def main():
        keeper = Uploads(tmp_path, spare=0)
        begun = keeper.create("a", len(content))
        with pytest.raises(Refusal) as refused:
            await keeper.append(begun.id, 0, pieces(0))
        assert refused.value.code == "full"
        told = await keeper.progress(begun.id)
        assert beginning(tmp_path / "uploads") == content[: told.offset]
        await keeper.append(begun.id, told.offset, pieces(told.offset))
        assert (tmp_path / "uploads/a").read_bytes() == content

    asyncio.run(main())


def test_two_that_write_one_file_make_no_upload(tmp_path):
    """Another program that writes into it meanwhile: the request ends, it is not complete."""
    content = os.urandom(2 << 20)

    async def pieces():
        yield content[: 1 << 20]
        await asyncio.sleep(0)
        (left,) = (tmp_path / "uploads").iterdir()
        os.truncate(left, 100)
        yield content[1 << 20 :]

    async def main():
        keeper = Uploads(tmp_path, spare=0)
        begun = keeper.create("a", len(content))
        status = None
        try:
            await keeper.append(begun.id, 0, pieces())
        except Refusal as refused:
            status = refused.status
        assert status == 409
        assert not (tmp_path / "uploads/a").exists()

    asyncio.run(main())


def digest(kind, data):
    return f"{kind} {base64.b64encode(hashlib.new(kind, data).digest()).decode()}"


def test_a_part_that_is_not_what_was_sent_is_dropped(web, tus):
    content = os.urandom(3_000_000)
    options = tus.ask("OPTIONS")
    assert "checksum" in options.headers["Tus-Extension"].split(",")
    assert "sha256" in options.headers["Tus-Checksum-Algorithm"].split(",")
    place = tus.create("a", len(content)).headers["Location"]

    def patch(at, data, checksum):
        return tus.ask(
            "PATCH",
            place,
            Upload_Offset=str(at),
            Upload_Checksum=checksum,
            Content_Type="application/offset+octet-stream",
            data=data,
        )

    first, rest = content[:2_000_000], content[2_000_000:]
    assert patch(0, first, digest("sha256", first)).headers["Upload-Offset"] == "2000000"
    wrong = patch(2_000_000, rest[:-1] + b"?", digest("sha256", rest[:-1] + b"!"))
    assert wrong.status_code == 460
    assert tus.ask("HEAD", place).headers["Upload-Offset"] == "2000000"
    assert patch(2_000_000, rest, "md99 AAAA").status_code == 400
    assert patch(2_000_000, rest, "sha256 ?").status_code == 400
    assert patch(2_000_000, rest, digest("sha1", rest)).status_code == 204
    assert (web.home / "uploads/a").read_bytes() == content


def test_a_checked_part_that_breaks_off_counts_as_nothing(web, tus):
    """Half of it cannot be checked."""
    content = os.urandom(1_000_000)
    place = tus.create("a", len(content)).headers["Location"]
    more = f"Upload-Checksum: {digest('sha256', content)}\r\n"
    tus.break_off(place, 0, content[:900_000], len(content), more).close()
    time.sleep(0.3)
    assert tus.ask("HEAD", place).headers["Upload-Offset"] == "0"


def test_a_file_in_one_request_can_be_checked(web):
    content = os.urandom(2_000_000)
    told = base64.b64encode(hashlib.sha256(content).digest()).decode()
    wrong = upload(web, "a", content[:-1] + b"?", **{"Repr-Digest": f"sha-256=:{told}:"})
    assert wrong.status_code == 400
    assert wrong.json()["error"]["code"] == "damaged"
    assert list((web.home / "uploads").iterdir()) == []
    assert upload(web, "a", content, **{"Repr-Digest": f"sha-256=:{told}:"}).status_code == 201
    assert upload(web, "b", content, **{"Repr-Digest": "sha-256=:?:"}).status_code == 400
    assert upload(web, "c", content, **{"Repr-Digest": "md5=:AAAA:"}).status_code == 201
