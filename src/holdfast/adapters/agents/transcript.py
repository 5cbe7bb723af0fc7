"""The file of a conversation: its position and its content, as saved in a checkpoint.

The position is the number of bytes (up to the end of the last complete line), their SHA-256 and the id of the last
message. The content is saved as text, which the store divides into parts, so that appended text costs only its own
size. Above `MAX_BYTES` only the position is saved; as such files only grow, that is enough to restore the conversation
as long as the file exists.
"""

from __future__ import annotations

import base64
import json
import os
import stat
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from holdfast.adapters.agents.event import AgentEvent, label, lines_of
from holdfast.model import JSON

STATE = "conversation"
"""The name of the state."""
MAX_BYTES = 16 << 20
MAX_HASHED_BYTES = 256 << 20
_SUFFIXES = (".jsonl", ".json", ".txt", ".md", ".zst")
_ZSTD = b"\x28\xb5\x2f\xfd"
_TAIL_BYTES = 64 << 10
_IDS = ("uuid", "id", "message_id", "messageId")


def capture(event: AgentEvent, workspace: Path, *, redacts: bool = False) -> dict[str, JSON]:
    """Read the conversation of an event; `missing` says why there is no content. Never fails.

    `redacts` replaces keys and passwords; position and checksum are then those of the redacted text.
    """
    about: dict[str, JSON] = {"agent": event.agent, "session": event.session, "path": event.transcript}
    if not event.transcript:
        return {**about, "missing": "the agent does not report its path"}
    try:
        return {**about, **_captured(Path(event.transcript), workspace, redacts=redacts)}
    except (OSError, ValueError) as error:
        return {**about, "missing": getattr(error, "strerror", None) or str(error)}


def _captured(path: Path, workspace: Path, *, redacts: bool) -> dict[str, JSON]:
    path = _there(path)
    if path.suffix not in _SUFFIXES:
        raise ValueError("its name is not one of a conversation")
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise ValueError("it is not a file of this user")
        if found.st_size > MAX_HASHED_BYTES:
            return {"path": str(path), "bytes": found.st_size, "missing": "it is too large"}
        data = file.read(found.st_size)
    if data.startswith(_ZSTD):
        if redacts:
            return {"path": str(path), "missing": "it is compressed, so secrets in it cannot be redacted"}
        is_large = len(data) > MAX_BYTES
        return _large(path, data) if is_large else {**_position(path, data), "base64": base64.b64encode(data).decode()}
    whole = _whole_lines(data, path)
    foreign = _foreign(whole[-_TAIL_BYTES:], workspace)
    if foreign:
        return {"path": str(path), "missing": f"it belongs to another project: {foreign}"}
    if len(whole) > MAX_BYTES:
        return {**_large(path, whole), "message": _last_id(whole)}
    if redacts:
        from holdfast.secret_patterns import redact  # start-up cost, only if it is configured

        whole = redact(whole.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    return {**_position(path, whole), "message": _last_id(whole), "text": whole.decode("utf-8", "surrogateescape")}


def _there(path: Path) -> Path:
    """The file itself, or the compressed one that replaced it."""
    compressed = path.with_name(path.name + ".zst")
    return compressed if not path.exists() and compressed.exists() else path


def _position(path: Path, data: bytes) -> dict[str, JSON]:
    return {"path": str(path), "bytes": len(data), "sha256": sha256(data).hexdigest()}


def _large(path: Path, data: bytes) -> dict[str, JSON]:
    return {**_position(path, data), "missing": f"it is larger than {MAX_BYTES >> 20} MiB; only its position is saved"}


def _whole_lines(data: bytes, path: Path) -> bytes:
    """The complete lines: a last line without an end may still be being written."""
    return data[: data.rfind(b"\n") + 1] if path.suffix == ".jsonl" else data


def _lines_from_end(data: bytes) -> list[dict[str, JSON]]:
    found = []
    for line in reversed(data[-_TAIL_BYTES:].splitlines()):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _last_id(data: bytes) -> str | None:
    for value in _lines_from_end(data):
        inner = value.get("payload")
        for fields in (value, inner if isinstance(inner, dict) else {}):
            for name in _IDS:
                if isinstance(fields.get(name), str):
                    return str(fields[name])[:200]
    return None


def model_in(conversation: Mapping[str, JSON]) -> str:
    """Return the model of the latest message in a captured conversation that names one; empty if none does."""
    text = conversation.get("text")
    tail = text[-_TAIL_BYTES:].encode("utf-8", "surrogateescape") if isinstance(text, str) else b""
    for value in _lines_from_end(tail):
        for inner in (value.get("message"), value.get("payload"), value):
            model = inner.get("model") if isinstance(inner, dict) else None
            if isinstance(model, str) and model and not model.startswith("<"):  # Claude Code writes <synthetic>
                return label(model)
    return ""


def closing_in(path: str) -> str:
    """Return what the agent said last in a conversation, after the last thing that the user said; empty if nothing."""
    if not path.endswith(".jsonl"):
        return ""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            file.seek(max(0, os.fstat(fd).st_size - _TAIL_BYTES))
            tail = file.read(_TAIL_BYTES)
    except (OSError, ValueError):
        return ""
    for value in _lines_from_end(tail):
        inner = next((each for each in map(value.get, ("message", "payload")) if isinstance(each, dict)), value)
        content = inner.get("content")
        parts = content if isinstance(content, list) else [{"text": content}]
        texts = [each["text"] for each in parts if isinstance(each, dict) and isinstance(each.get("text"), str)]
        if texts and not value.get("isSidechain"):
            return lines_of("\n".join(map(str, texts))) if inner.get("role") == "assistant" else ""
    return ""


def _foreign(tail: bytes, workspace: Path) -> str:
    """The folder that a conversation names, if it is unrelated to the workspace."""
    for value in _lines_from_end(tail):
        inner = value.get("payload")
        cwd = value.get("cwd") or (inner.get("cwd") if isinstance(inner, dict) else None)
        if isinstance(cwd, str) and os.path.isabs(cwd):
            real = Path(os.path.realpath(cwd))
            return "" if real.is_relative_to(workspace) or workspace.is_relative_to(real) else cwd
    return ""
