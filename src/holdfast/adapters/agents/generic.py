"""`holdfast hook generic`: events of any agent as lines of JSON on stdin, one line of JSON on stdout for each.

A line that cannot be used gets an error and changes nothing; the next line is read. The process ends with status 0 when
stdin or stdout is closed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from holdfast.adapters.agents.event import MAX_BYTES, AgentEvent, EventFields, EventKind, label
from holdfast.adapters.agents.hook import HookCall, after_save, find_workspaces, home_of, open_workspace, save_event
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.workspace import Workspace

NAME = "generic"

_KINDS = {
    "start": EventKind.START,
    "prompt": EventKind.PROMPT,
    "before": EventKind.BEFORE,
    "after": EventKind.AFTER,
    "subagent-start": EventKind.SUB_START,
    "subagent-stop": EventKind.SUB_STOP,
    "stop": EventKind.STOP,
    "end": EventKind.END,
}
_TEXTS = ("session", "turn", "tool", "call", "prompt", "subagent", "folder", "agent", "version", "message")
_AGENT = re.compile(r"[a-z][a-z0-9_.-]{0,39}")


class BadLine(ValueError):
    """A line that is not an event; the message says why."""


def serve(lines: BinaryIO, answers: BinaryIO, environ: Mapping[str, str], cwd: str) -> None:
    """Answer every line until there are no more. Raises OSError only if the answers cannot be written."""
    opened: dict[Path, Workspace] = {}

    def opening(folder: Path, around: Mapping[str, str]) -> Workspace:
        if folder not in opened:
            opened[folder] = open_workspace(folder, around)
        return opened[folder]

    number = 0
    while line := lines.readline(MAX_BYTES + 1):
        number += 1
        if len(line) > MAX_BYTES and not line.endswith(b"\n"):
            while (rest := lines.readline(MAX_BYTES)) and not rest.endswith(b"\n"):
                pass
            reply: dict[str, Any] = {"error": f"longer than {MAX_BYTES >> 20} MiB"}
        elif not line.strip():
            continue
        else:
            reply = _answer(line, environ, cwd, opening)
        reply = {"ok": "error" not in reply, "line": number, **reply}
        answers.write(json.dumps(reply).encode() + b"\n")
        answers.flush()
        for workspace in opened.values():  # now that nobody waits
            with contextlib.suppress(HoldfastError, OSError):
                after_save(workspace)


def _answer(
    line: bytes, environ: Mapping[str, str], cwd: str, opened: Callable[[Path, Mapping[str, str]], Workspace]
) -> dict[str, Any]:
    try:
        event = read_line(line, cwd)
        call = HookCall(event.agent, "", b"", event.cwd, os.getppid(), time.time() + 1e9, environ)
        folders = find_workspaces(event, cwd=event.cwd, home=home_of(environ), environ=environ)
        messages = [save_event(event, folder, call, opened) for folder in folders]
        latest = opened(folders[0], environ).list(1)
        text = " ".join(filter(None, messages))
        return {"checkpoint": latest[0].id if latest else None, **({"message": text} if text else {})}
    except (BadLine, OSError) as error:
        return {"error": str(error)}
    except HoldfastError as error:
        return {"error": error.message}
    except Exception as error:  # the agent must not fail because of one event
        return {"error": f"unexpected {type(error).__name__}: {error}"}


def read_line(line: bytes, cwd: str) -> AgentEvent:
    """Read one event. BadLine, with the reason, if it is not one; unknown fields are ignored."""
    try:
        found = json.loads(line.decode("utf-8", "surrogateescape"), strict=False)
    except (ValueError, RecursionError):
        raise BadLine("not JSON") from None
    if not isinstance(found, dict):
        raise BadLine("not a JSON object")
    for name in _TEXTS:
        if name in found and not isinstance(found[name], str):
            raise BadLine(f"{name!r} is not a string")
    paths = found.get("paths", [])
    if not isinstance(paths, list) or not all(isinstance(each, str) for each in paths):
        raise BadLine("'paths' is not a list of strings")
    kind = _KINDS.get(str(found.get("event")))
    if kind is None:
        raise BadLine(f"'event' is none of {', '.join(_KINDS)}")
    if not found.get("session"):
        raise BadLine("'session' is missing")
    if kind in (EventKind.BEFORE, EventKind.AFTER) and not found.get("tool"):
        raise BadLine("'tool' is missing")
    agent, folder = found.get("agent", NAME), found.get("folder") or cwd
    if not _AGENT.fullmatch(agent):
        raise BadLine("'agent' is not a name of lower-case letters, digits, '-', '_' and '.'")
    if not os.path.isdir(folder) or not os.path.isabs(folder):
        raise BadLine("'folder' is not the absolute path of a folder")
    return _event(EventFields(found), kind, agent, folder, paths)


def _event(fields: EventFields, kind: EventKind, agent: str, folder: str, paths: list[str]) -> AgentEvent:
    names = [os.path.basename(each) for each in paths]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    sub = label(fields.text("subagent"))
    return AgentEvent(
        agent=agent,
        kind=kind,
        name=fields.text("event"),
        session=fields.text("session"),
        turn=fields.text("turn"),
        tool=fields.text("tool"),
        tool_use=fields.text("call"),
        sub=sub,
        sub_id=sub,
        cwd=folder,
        path=os.path.join(folder, paths[0]) if paths else "",
        subject=f"{names[0]}{more}" if names else fields.first_line("prompt"),
        version=fields.text("version"),
        closing=fields.message("message") if kind is EventKind.STOP else "",
    )
