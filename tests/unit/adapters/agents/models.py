"""Stand-ins for the services that agents talk to: each asks for one shell command, and is then content."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

COMMAND = "echo made > made.txt"


class _Handler(http.server.BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []
    """What was asked, of all services, as it came."""

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.send_error(404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}"
        self.asked.append(body.decode())
        asked = json.loads(body)
        reply = self.reply(asked)
        if reply is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def reply(self, asked: dict[str, Any]) -> bytes | None:
        raise NotImplementedError


class ForClaude(_Handler):
    """The messages of Claude Code, streamed."""

    def reply(self, asked: dict[str, Any]) -> bytes | None:
        if not self.path.startswith("/v1/messages") or not asked.get("stream"):
            return None
        contents = [message["content"] for message in asked["messages"] if isinstance(message["content"], list)]
        is_done = is_shown(asked) or any(part.get("type") == "tool_result" for content in contents for part in content)
        has_shell = any(tool.get("name") == "Bash" for tool in asked.get("tools", []))
        if has_shell and not is_done:
            block = {"type": "tool_use", "id": "toolu_01", "name": "Bash", "input": {}}
            given = json.dumps({"command": COMMAND, "description": "make a file"})
            delta, stop = {"type": "input_json_delta", "partial_json": given}, "tool_use"
        else:
            block, delta, stop = {"type": "text", "text": ""}, {"type": "text_delta", "text": "Done."}, "end_turn"
        message = {
            "id": "msg_1", "type": "message", "role": "assistant", "model": asked.get("model"), "content": [],
            "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
        }  # fmt: skip
        ended = {"stop_reason": stop, "stop_sequence": None}
        return b"".join(
            f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            for event in (
                {"type": "message_start", "message": message},
                {"type": "content_block_start", "index": 0, "content_block": block},
                {"type": "content_block_delta", "index": 0, "delta": delta},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 1}},
                {"type": "message_stop"},
            )
        )


class ForGemini(_Handler):
    """The contents of Gemini CLI, streamed."""

    def reply(self, asked: dict[str, Any]) -> bytes | None:
        parts = [part for content in asked.get("contents", []) for part in content.get("parts", [])]
        part: dict[str, Any] = {"text": "Done."}
        if not is_shown(asked) and not any("functionResponse" in each for each in parts):
            part = {"functionCall": {"name": "run_shell_command", "args": {"command": COMMAND, "description": "make"}}}
        found = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}]}
        return f"data: {json.dumps(found)}\r\n\r\n".encode()


class ForCodex(_Handler):
    """The responses of Codex, streamed."""

    def reply(self, asked: dict[str, Any]) -> bytes | None:
        if not self.path.endswith("/responses"):
            return None
        item: dict[str, Any] = {"type": "message", "id": "m1", "role": "assistant"}
        item["content"] = [{"type": "output_text", "text": "Done.", "annotations": []}]
        if not any(each.get("type") == "function_call_output" for each in asked["input"]):
            given = json.dumps({"cmd": COMMAND})
            item = {
                "type": "function_call",
                "id": "f1",
                "call_id": "call_1",
                "name": "exec_command",
                "arguments": given,
            }
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        return b"".join(
            f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            for event in (
                {"type": "response.created", "response": {"id": "r1"}},
                {"type": "response.output_item.done", "output_index": 0, "item": item},
                {"type": "response.completed", "response": {"id": "r1", "output": [item], "usage": usage}},
            )
        )


class ForOpencode(_Handler):
    """The completions of opencode, streamed."""

    shell = "bash"

    def reply(self, asked: dict[str, Any]) -> bytes | None:
        is_done = is_shown(asked) or any(message["role"] == "tool" for message in asked["messages"])
        delta: dict[str, Any] = {"role": "assistant", "content": "Done."}
        if any(tool["function"]["name"] == self.shell for tool in asked.get("tools", [])) and not is_done:
            given = {"command": COMMAND, "description": "make a file", "is_background": False}
            call = {"name": self.shell, "arguments": json.dumps(given)}
            delta = {
                "role": "assistant",
                "tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": call}],
            }
        reason = "tool_calls" if "tool_calls" in delta else "stop"
        choices = (
            [{"index": 0, "delta": delta, "finish_reason": None}],
            [{"index": 0, "delta": {}, "finish_reason": reason}],
        )
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return b"".join(f"data: {json.dumps({**chunk, 'choices': each})}\n\n".encode() for each in choices) + (
            b"data: [DONE]\n\n"
        )


class ForQwen(ForOpencode):
    """The completions of Qwen Code, streamed."""

    shell = "run_shell_command"


def is_shown(asked: dict[str, Any]) -> bool:
    """Whether this is about a command of Holdfast, for which the model has nothing to do."""
    return "This is a command of Holdfast" in json.dumps(asked)


@contextlib.contextmanager
def served(handler: type[_Handler]) -> Iterator[str]:
    """Serve for a while; gives the address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
