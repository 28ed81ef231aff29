#!/usr/bin/python3 -I
"""A steerable model: the endpoint that the real agents talk to in place of their vendor's.

It speaks Anthropic's messages (claude), OpenAI's responses (codex) and chat completions (opencode,
pi) well enough for a whole turn, streamed. What it does, the newest message of the user says:

``STUB run COMMAND``   call the agent's tool for commands, once; then answer
``STUB ask``           call the agent's tool for questions to its user, once; then answer
``STUB think N``       answer after N seconds

and anything else is answered at once, with `ANSWER`. Whoever comes with a key that holds the word
`dead` is refused as a vendor refuses a login that has ended.

Usage: ``stub_model.py PORT [LOG]``. Listens on the loopback; LOG gets a line of JSON for each
request: path, refused or not, and all that was said, so that a test can see what reached the
vendor. Only the standard library: the file is copied into the guest and runs there alone.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import sys
import time
from typing import Any

ANSWER = "All done here."
DEAD = "dead"
_ORDER = re.compile(r"STUB (run|ask|think) ?([^\n\"]*)")
_SHELLS = ("Bash", "bash", "exec_command")
_QUESTIONS = ("AskUserQuestion", "question")
_QUESTION = {
    "question": "Which colour?",
    "header": "Colour",
    "multiSelect": False,
    "options": [{"label": name, "description": f"It is {name}."} for name in ("red", "blue")],
}


class Request:
    """What one request says, whatever its dialect."""

    def __init__(self, path: str, document: dict[str, Any]) -> None:
        self.path = path
        self.document = document
        said = document.get("messages") or document.get("input") or []
        self.said = [item for item in said if isinstance(item, dict)]
        self.tools = [_name(tool) for tool in document.get("tools") or []]

    def order(self) -> tuple[str, str]:
        """Return what the newest words of the user ask the stub to do, once."""
        for item in reversed(self.said):
            if item.get("role") == "tool" or str(item.get("type")).endswith("call_output"):
                return "", ""  # it was done
            if item.get("role") != "user":
                continue
            content = item.get("content")
            for part in reversed(content if isinstance(content, list) else [{"text": content}]):
                if part.get("type") == "tool_result":
                    return "", ""
                found = _ORDER.search(str(part.get("text")))
                if found:
                    return found.group(1), found.group(2).strip()
        return "", ""

    def call(self) -> tuple[str, dict[str, Any]] | None:
        """Return the tool to call and with what; None to answer."""
        order, words = self.order()
        if order == "run":
            name = next((name for name in _SHELLS if name in self.tools), None)
            if name is None:
                return None
            if name == "exec_command":  # codex's, which asks where it is not free to do all
                more = {"sandbox_permissions": "require_escalated", "justification": "May I?"}
                return name, {"cmd": words, **more}
            return name, {"command": words, "description": "What the test wants"}
        if order == "ask":
            name = next((name for name in _QUESTIONS if name in self.tools), None)
            return None if name is None else (name, {"questions": [_QUESTION]})
        return None


def _name(tool: Any) -> str:
    inner = tool.get("function") if isinstance(tool.get("function"), dict) else tool
    return str(inner.get("name") or tool.get("type"))


class Model(http.server.BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    log_path = ""

    def log_message(self, *arguments: Any) -> None:
        """Say nothing on the terminal."""

    def do_GET(self) -> None:
        """List the one model."""
        self.reply({"object": "list", "data": [{"id": "mock", "object": "model"}], "models": []})

    def do_POST(self) -> None:
        """Answer, call a tool, or refuse."""
        length = int(self.headers.get("content-length") or 0)
        request = Request(self.path, json.loads(self.rfile.read(length) or b"{}"))
        given = self.headers.get("x-api-key"), self.headers.get("authorization")
        refused = any(DEAD in key for key in given if key)
        self.note(request, refused)
        if refused:
            self.refuse()
            return
        order, words = request.order()
        # A request without tools is a side one, for a title: no order is meant for it.
        if order == "think" and request.tools:
            time.sleep(float(words.split()[0]))
        if self.path.startswith("/v1/messages"):
            self.as_messages(request)
        elif self.path.startswith("/v1/responses"):
            self.as_responses(request)
        else:
            self.as_completions(request)

    def note(self, request: Request, refused: bool) -> None:
        """Keep what was said."""
        if not self.log_path:
            return
        line = {"path": self.path, "refused": refused, "body": request.document}
        descriptor = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, json.dumps(line).encode() + b"\n")
        os.close(descriptor)

    # -- the dialects ---------------------------------------------------------------------

    def as_messages(self, request: Request) -> None:
        """Anthropic's."""
        call = request.call()
        block: dict[str, Any] = {"type": "text", "text": ANSWER}
        if call is not None:
            block = {"type": "tool_use", "id": "toolu_1", "name": call[0], "input": call[1]}
        stop = "end_turn" if call is None else "tool_use"
        usage = {"input_tokens": 1, "output_tokens": 1}
        message: dict[str, Any] = {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "model": "mock",
            "content": [],
            "usage": usage,
        }
        if not request.document.get("stream"):
            self.reply({**message, "content": [block], "stop_reason": stop})
            return
        delta = {"type": "text_delta", "text": ANSWER}
        start: dict[str, Any] = {"type": "text", "text": ""}
        if call is not None:
            delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
            start = {**block, "input": {}}
        self.stream(
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": start},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage},
            {"type": "message_stop"},
        )

    def as_responses(self, request: Request) -> None:
        """OpenAI's, of today."""
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        response: dict[str, Any] = {"id": "r1", "object": "response", "status": "completed"}
        response |= {"model": "mock", "output": [], "usage": usage}
        call = request.call()
        content = [{"type": "output_text", "text": ANSWER}]
        item: dict[str, Any]
        item = {"type": "message", "id": "m1", "role": "assistant", "content": content}
        if call is not None:
            item = {"type": "function_call", "id": "f1", "call_id": "call_1", "name": call[0]}
            item["arguments"] = json.dumps(call[1])
        self.stream(
            {"type": "response.created", "response": response},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": response},
        )

    def as_completions(self, request: Request) -> None:
        """OpenAI's, as everybody else copies it."""
        chunk = {"id": "c1", "object": "chat.completion.chunk", "model": "mock"}
        call = request.call()
        delta: dict[str, Any] = {"role": "assistant", "content": ANSWER}
        if call is not None:
            function = {"name": call[0], "arguments": json.dumps(call[1])}
            tool = {"index": 0, "id": "call_1", "type": "function", "function": function}
            delta = {"role": "assistant", "content": None, "tool_calls": [tool]}
        end = "stop" if call is None else "tool_calls"
        self.stream(
            {**chunk, "choices": [{"index": 0, "delta": delta}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": end}]},
        )

    # -- answering ------------------------------------------------------------------------

    def refuse(self) -> None:
        """Refuse the login."""
        if self.path.startswith("/v1/messages"):
            error = {"type": "authentication_error", "message": "invalid x-api-key"}
            self.reply({"type": "error", "error": error}, 401)
        else:
            error = {"type": "invalid_request_error", "code": "invalid_api_key"}
            error["message"] = "Incorrect API key provided: dead."
            self.reply({"error": {**error, "param": None}}, 401)

    def reply(self, document: dict[str, Any], status: int = 200) -> None:
        """Answer with a document."""
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, *events: dict[str, Any]) -> None:
        """Answer with events."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for event in events:
            if "type" in event:
                self.wfile.write(f"event: {event['type']}\n".encode())
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        if "type" not in events[0]:
            self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


def main(words: list[str]) -> None:
    """Serve until somebody ends it."""
    if len(words) > 1:
        Model.log_path = words[1]
    http.server.ThreadingHTTPServer(("127.0.0.1", int(words[0])), Model).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
