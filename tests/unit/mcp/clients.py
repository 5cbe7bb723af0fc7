"""Two ways to speak with a real `holdfast mcp`: the package's own client, and lines on a pipe."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from mcp import Client, StdioServerParameters, stdio_client

T = TypeVar("T")
COMMAND = (sys.executable, "-m", "holdfast.cli")


class Talk:
    """A client's tools, called by name: `await talk.save(message="m")` gives what is in the answer."""

    def __init__(self, client: Client, pid_file: Path) -> None:
        self.client = client
        self._pid_file = pid_file

    @property
    def pid(self) -> int:
        return int(self._pid_file.read_text())

    async def ok(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The answer of a tool that must do what it is asked for."""
        result = await self.client.call_tool(f"checkpoint_{tool}", arguments)
        assert not result.is_error, result
        [block] = result.content
        assert json.loads(block.text) == result.structured_content  # for clients that know no structured answers
        return result.structured_content

    async def error(self, tool: str, **arguments: Any) -> dict[str, str]:
        """The error of one that must not."""
        result = await self.client.call_tool(f"checkpoint_{tool}", arguments)
        assert result.is_error, result
        return result.structured_content["error"]


@asynccontextmanager
async def connected(project: Path, *options: str, mode: str = "auto") -> AsyncIterator[Talk]:
    """Start a server on a project, and speak with it until the block ends. It must not have shown a traceback."""
    pid_file, log = project.parent / f"pid-{os.urandom(4).hex()}", project.parent / f"log-{os.urandom(4).hex()}"
    server = StdioServerParameters(
        command="sh",
        args=["-c", f"echo $$ > '{pid_file}'; exec \"$@\"", "sh", *COMMAND, "-C", str(project), "mcp", *options],
        env=dict(os.environ),
    )
    with log.open("w") as errors:
        async with Client(stdio_client(server, errlog=errors), mode=mode) as client:  # type: ignore[arg-type]
            yield Talk(client, pid_file)
    assert "Traceback" not in log.read_text()


def run(scene: Coroutine[Any, Any, T]) -> T:
    """Play a scene; one that hangs fails."""

    async def bounded() -> T:
        async with asyncio.timeout(300):
            return await scene

    return asyncio.run(bounded())


class Pipe:
    """A server spoken with by lines, as written."""

    def __init__(self, project: Path) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "-C", str(project), "mcp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._patience = threading.Timer(120, self.process.kill)  # a server that hangs fails, by the end of its output
        self._patience.start()
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "pipe", "version": "1"}}
        self.send(id=0, method="initialize", params=hello)
        self.receive()
        self.send(method="notifications/initialized")

    def __enter__(self) -> Pipe:
        return self

    def __exit__(self, *_: object) -> None:
        self._patience.cancel()
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()

    def send(self, **message: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def call(self, number: int, tool: str, **arguments: Any) -> None:
        self.send(id=number, method="tools/call", params={"name": f"checkpoint_{tool}", "arguments": arguments})

    def write(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """The next line, which must be a message of the protocol."""
        assert self.process.stdout
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert message["jsonrpc"] == "2.0"
        return message

    def end(self) -> tuple[bytes, bytes]:
        """Close its input, and return what else it wrote once it has ended."""
        out, err = self.process.communicate(timeout=120)
        return out, err
