"""A session of a coding agent, played through the real hooks in the project of `holdfast demo`."""

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.adapters.agents.hook import HookCall, handle_event
from holdfast.cli.commands.demo import make
from holdfast.workspace import Workspace

CART = """\
\"\"\"Prices of a cart.\"\"\"

VAT = 0.19


def total(prices, discount=0.0):
    \"\"\"Sum up, with VAT.\"\"\"
    subtotal = sum(prices)
    if discount:
        subtotal -= subtotal * discount
    return round(subtotal * (1 + VAT), 2)


def shipping(weight_kg):
    if weight_kg > 20:
        raise ValueError("too heavy")
    return 4.9 if weight_kg < 2 else 8.9
"""


class Session:
    """One session of an agent: prompts, tools that change files, and its conversation on disk."""

    def __init__(self, folder: Path, environ: dict[str, str], *, name: str = "4f1c2a9e-demo") -> None:
        self.project = folder / "shop"
        self.environ = environ
        self.name = name
        data = folder / "home" / ".claude" / "projects" / "shop"
        data.mkdir(parents=True, exist_ok=True)
        self.transcript = data / f"{name}.jsonl"

    def say(self, role: str, *content: Any) -> None:
        """Add a message to the conversation."""
        blocks = content[0] if isinstance(content[0], str | list) else list(content)
        line = {"type": role, "cwd": str(self.project), "uuid": os.urandom(8).hex()}
        with self.transcript.open("a") as file:
            file.write(json.dumps(line | {"message": {"role": role, "content": blocks}}) + "\n")

    def event(self, name: str, **fields: Any) -> None:
        """Send an event to the hook, as the agent does."""
        fields |= {"hook_event_name": name, "session_id": self.name, "cwd": str(self.project)}
        data = json.dumps(fields | {"transcript_path": str(self.transcript)}).encode()
        handle_event(HookCall("claude-code", "", data, str(self.project), os.getpid(), time.time() + 60, self.environ))

    def prompt(self, text: str) -> None:
        self.say("user", text)
        self.event("UserPromptSubmit", prompt=text)

    def tool(self, tool: str, arguments: dict[str, Any], act: Callable[[], object], result: str = "done") -> None:
        """Run a tool, between its two events."""
        use = f"toolu_{os.urandom(6).hex()}"
        self.say("assistant", {"type": "tool_use", "id": use, "name": tool, "input": arguments})
        self.event("PreToolUse", tool_name=tool, tool_input=arguments, tool_use_id=use)
        act()
        self.say("user", [{"type": "tool_result", "tool_use_id": use, "content": result}])
        self.event("PostToolUse", tool_name=tool, tool_input=arguments, tool_use_id=use)

    def write(self, path: str, text: str | bytes) -> None:
        """The tool that writes a file."""
        target = self.project / path

        def act() -> None:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text.encode() if isinstance(text, str) else text)

        self.tool("Write", {"file_path": str(target)}, act)

    def reply(self, text: str) -> None:
        self.say("assistant", {"type": "text", "text": text})
        self.event("Stop")


def play(folder: Path, environ: dict[str, str]) -> Session:
    """The story: a person saves, an agent works in two turns, the person edits in between."""
    session = Session(folder, environ)
    project = session.project
    make(project)
    (project / "src" / "cart.py").write_text(CART)
    workspace = open_workspace(project, environ)
    workspace.save("before the agent", name="baseline")
    session.event("SessionStart", source="startup")
    session.prompt("The cart ignores the discount above 50 items. Fix it, and add a test.")
    session.say("assistant", {"type": "thinking", "thinking": "The discount is applied before VAT. Look at total()."})
    session.say("assistant", {"type": "text", "text": "I will look at src/cart.py first."})
    fixed = CART.replace(
        "    if discount:\n", "    if discount or len(prices) > 50:\n        discount = discount or 0.05\n"
    )
    session.write("src/cart.py", fixed.replace("4.9 if weight_kg < 2 else 8.9", "4.9 if weight_kg <= 2 else 7.5"))
    test = "from cart import total\n\n\ndef test_discount():\n    assert total([1] * 60) == 67.83\n"
    session.write("tests/test_cart.py", test)
    session.write("docs/cart.png", picture(96, 48))
    session.tool("Bash", {"command": "pytest -q", "description": "Run the tests"}, lambda: None, "1 passed in 0.02s")
    session.reply("Carts with more than 50 items now get 5 %. I also changed the shipping limits, which looked wrong.")
    (project / "config.toml").write_text('[shop]\ncurrency = "SEK"\ndebug = false\n')
    workspace.save("switch to kronor")
    session.prompt("Add a --json option to app.py.")
    session.write(
        "src/app.py",
        "import json\nimport sys\n\nfrom cart import total\n\nanswer = total([1, 2, 3])\n"
        'print(json.dumps({"total": answer}) if "--json" in sys.argv else answer)\n',
    )
    session.write("config.toml", '[shop]\ncurrency = "SEK"\ndebug = true\njson = true\n')
    session.reply("`app.py --json` prints the total as JSON. I turned debug on to try it.")
    return session


def open_workspace(project: Path, environ: dict[str, str]) -> Workspace:
    """The workspace of a session, with its own state folder."""
    return Workspace(project, environ=environ, home=environ["HOME"], on_unknown="tagged")


def environment(folder: Path) -> dict[str, str]:
    """An environment in which nothing of this computer's user is touched."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_RUNTIME_DIR": str(home / "run"),
    }


def picture(width: int, height: int) -> bytes:
    """A small PNG."""
    rows = b"".join(b"\0" + b"".join(bytes((40 + x, 110, 90 + 2 * y)) for x in range(width)) for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
