"""A model that answers "All done here." to everything, in the dialects of the agents.

Whoever comes with a key that holds the word `dead` is refused as a vendor refuses a login that
has ended.

Usage: model.py PORT. Listens on the loopback of the (network-less) namespace that the test made.
"""

from __future__ import annotations

import http.server
import json
import sys

ANSWER = "All done here."
DEAD = "dead"


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self.reply({"object": "list", "data": [{"id": "mock", "object": "model"}], "models": []})

    def do_POST(self):
        length = int(self.headers.get("content-length") or 0)
        request = json.loads(self.rfile.read(length) or b"{}")
        given = self.headers.get("x-api-key"), self.headers.get("authorization")
        if any(DEAD in key for key in given if key):
            self.refuse()
            return
        if self.path.startswith("/v1/messages"):
            message = {
                "id": "m1",
                "type": "message",
                "role": "assistant",
                "model": "mock",
                "content": [],
                "usage": {"input_tokens": 1, "output_tokens": 1},
            }
            if not request.get("stream"):
                text = {"type": "text", "text": ANSWER}
                self.reply({**message, "content": [text], "stop_reason": "end_turn"})
                return
            delta = {"type": "text_delta", "text": ANSWER}
            block = {"type": "text", "text": ""}
            end = {"stop_reason": "end_turn"}
            self.stream(
                {"type": "message_start", "message": message},
                {"type": "content_block_start", "index": 0, "content_block": block},
                {"type": "content_block_delta", "index": 0, "delta": delta},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": end, "usage": {"output_tokens": 1}},
                {"type": "message_stop"},
            )
        elif self.path.startswith("/v1/responses"):
            usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
            response = {"id": "r1", "object": "response", "status": "completed", "output": []}
            response |= {"model": "mock", "usage": usage}
            content = [{"type": "output_text", "text": ANSWER}]
            item = {"type": "message", "id": "m1", "role": "assistant", "content": content}
            self.stream(
                {"type": "response.created", "response": response},
                {"type": "response.output_item.done", "output_index": 0, "item": item},
                {"type": "response.completed", "response": response},
            )
        else:
            chunk = {"id": "c1", "object": "chat.completion.chunk", "model": "mock"}
            delta = {"role": "assistant", "content": ANSWER}
            self.stream(
                {**chunk, "choices": [{"index": 0, "delta": delta}]},
                {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            )

    def refuse(self):
        if self.path.startswith("/v1/messages"):
            error = {"type": "authentication_error", "message": "invalid x-api-key"}
            self.reply({"type": "error", "error": error}, 401)
        else:
            error = {"type": "invalid_request_error", "code": "invalid_api_key", "param": None}
            error["message"] = "Incorrect API key provided: dead."
            self.reply({"error": error}, 401)

    def reply(self, document, status=200):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, *events):
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


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Model).serve_forever()
