"""A stand-in for the Messages API, on loopback: calls the tools it was told to, one after the other, then ends."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Call = tuple[str, Callable[[list[Any]], dict[str, Any]]]
"""A tool, and its arguments, made of the results of those before it."""


@contextmanager
def served(calls: Sequence[Call]) -> Iterator[tuple[str, list[Any]]]:
    """The address of it, and the results of the tools, which come in as they are called."""
    results: list[Any] = []

    class Handler(_Handler):
        def reply(self, asked: dict[str, Any]) -> dict[str, Any]:
            results[:] = _results(asked)
            if not asked.get("tools") or len(results) >= len(calls):
                return {"type": "text", "text": "done"}
            name, arguments = calls[len(results)]
            return {"type": "tool_use", "id": f"call-{len(results)}", "name": name, "input": arguments(results)}

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", results
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _results(asked: dict[str, Any]) -> list[Any]:
    blocks = [
        block for message in asked["messages"] if isinstance(message["content"], list) for block in message["content"]
    ]
    return [block["content"] for block in blocks if block.get("type") == "tool_result"]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, asked: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def log_message(self, *_: object) -> None: ...

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self.path.startswith("/v1/messages") or "count_tokens" in self.path:
            return self._send("application/json", json.dumps({"input_tokens": 1}))
        block = self.reply(asked)
        if asked.get("stream"):
            return self._send("text/event-stream", "".join(map(_event, _events(block))))
        return self._send("application/json", json.dumps(_message([block])))

    def do_GET(self) -> None:
        self._send("application/json", "{}")

    do_HEAD = do_GET  # noqa: N815

    def _send(self, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _message(content: list[dict[str, Any]]) -> dict[str, Any]:
    stop = {"tool_use": "tool_use", "text": "end_turn"}[content[0]["type"]] if content else None
    usage = {"input_tokens": 1, "output_tokens": 1}
    fixed = {"id": "m", "type": "message", "role": "assistant", "model": "test", "stop_sequence": None, "usage": usage}
    return {**fixed, "content": content, "stop_reason": stop}


def _events(block: dict[str, Any]) -> list[dict[str, Any]]:
    if block["type"] == "text":
        empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
    else:
        empty = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    stop = {"stop_reason": _message([block])["stop_reason"], "stop_sequence": None}
    return [
        {"type": "message_start", "message": _message([])},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


def _event(event: dict[str, Any]) -> str:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
