"""Plays a service of a user's that lies: in the place of the real one, on a UNIX socket.

    lying_service.py SOCKET HOW

Runs on the guest's own Python, in the background, until its process is ended; its id is in
SOCKET.pid. HOW is what it answers to everything: a status, or `early` for hints before the answer.
A request for a WebSocket is granted, with cookies, where HOW is 101.
"""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import sys
import threading

PAGE = b"<!doctype html><title>false</title><script>document.title='owned'</script>a-lie"

WICKED = (
    b"Content-Type: text/html; charset=utf-8",
    b"Content-Security-Policy: default-src 'self' 'unsafe-inline' *",
    b"Content-Disposition: inline",
    b"Link: </bob/lie.js>; rel=preload; as=script",
    b"Refresh: 0; url=https://evil.test/",
    b"Location: https://evil.test/",
    b"Content-Location: https://evil.test/",
    b"Set-Cookie: __Host-agent_box=x; Path=/; Secure",
    b"Set-Cookie2: a=b",
    b"Clear-Site-Data: cookies",
    b"Service-Worker-Allowed: /",
    b"Permissions-Policy: camera=*",
    b"Access-Control-Allow-Origin: *",
    b"Access-Control-Allow-Credentials: true",
    b"Alt-Svc: h3=evil.test:443",
    b"Strict-Transport-Security: max-age=0",
    b"X-Frame-Options: ALLOWALL",
    b"WWW-Authenticate: Basic realm=lie",
    b"Cross-Origin-Opener-Policy: unsafe-none",
    b"Report-To: {}",
    b"Nel: {}",
    b"Speculation-Rules: /bob/lie.json",
    b"Sourcemap: /bob/lie.map",
    b"Etag: {http.request.header.Cookie}",
    b"Server: lie",
    b"X-Anything: lie",
)
"""What such a service would like the browser to take for the word of the box."""


def answer(client: socket.socket, how: str) -> None:
    """Read one request and lie."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = client.recv(65536)
        if not part:
            return
        data += part
    more, status = list(WICKED), how
    if how == "early":
        client.sendall(b"HTTP/1.1 103 Early Hints\r\n" + b"\r\n".join(WICKED) + b"\r\n\r\n")
        status = "200"
    if how == "101":
        key = next(
            line.split(b": ")[1]
            for line in data.split(b"\r\n")
            if line.lower().startswith(b"sec-websocket-key")
        )
        proof = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()  # noqa: S324
        more += [b"Upgrade: websocket", b"Connection: Upgrade"]
        more += [b"Sec-WebSocket-Accept: " + base64.b64encode(proof)]
        body = b""
    else:
        more += [b"Content-Length: %d" % len(PAGE), b"Connection: close"]
        body = PAGE
    head = b"\r\n".join([b"HTTP/1.1 " + status.encode() + b" X", *more, b"", b""])
    client.sendall(head + body)
    if how == "101":
        client.recv(65536)
    client.close()


def main() -> None:
    """Listen in the place of the service."""
    path, how = sys.argv[1:]
    if os.path.lexists(path):
        os.unlink(path)  # noqa: PTH108
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o666)  # noqa: PTH101, S103
    listener.listen(64)
    if pid := os.fork():
        with open(f"{path}.pid", "w") as file:  # noqa: PTH123
            file.write(str(pid))
        return
    os.setsid()
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    while True:
        client = listener.accept()[0]
        threading.Thread(target=answer, args=(client, how), daemon=True).start()


if __name__ == "__main__":
    main()
