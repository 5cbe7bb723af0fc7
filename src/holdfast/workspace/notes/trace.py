"""The record of a commit as a note has it: an Agent Trace record (agent-trace.dev, version 0.1). Pure.

`files[].conversations[]` groups the lines of a file by who wrote them. `holdfast` in a conversation has what the format
has no field for: actor, session, turn, and who may have written it. A file that counts as a whole has no ranges.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from holdfast.escaping import escape_path
from holdfast.workspace.notes.commit_lines import CommitLines
from holdfast.workspace.notes.line_authors import UNKNOWN, FileAuthors, LineAuthor
from holdfast.workspace.stored.text_merge import split_lines

VERSION = "0.1"
TOOL = "holdfast"
_MOST_LINES = 4 << 20
"""A longer file counts as a whole, and no more lines are read from a record."""
_PROVIDERS = {"claude": "anthropic", "gpt": "openai", "codex": "openai", "gemini": "google"}
_MODEL_MAX_CHARS = 250

Trace = dict[str, Any]


def make_trace(commit: CommitLines, authors: Sequence[FileAuthors], *, trace_id: str, when: str, version: str) -> Trace:
    """Make the record of a commit."""
    texts = {each.path: split_lines(each.text or b"") for each in commit.files}
    return {
        "version": VERSION,
        "id": trace_id,
        "timestamp": when,
        "vcs": {"type": "git", "revision": commit.commit},
        "tool": {"name": TOOL, "version": version},
        "files": [_file(each, texts[each.path]) for each in sorted(authors, key=lambda each: each.path)],
    }


def _file(file: FileAuthors, text: Sequence[bytes]) -> dict[str, Any]:
    grouped: dict[LineAuthor, list[int]] = {} if file.whole is None else {file.whole: []}
    for line, author in sorted(file.lines.items()):
        grouped.setdefault(author, []).append(line)
    conversations = [_conversation(author, lines, text) for author, lines in sorted(grouped.items())]
    return {"path": spelled(file.path), "conversations": conversations}


def _conversation(author: LineAuthor, lines: Sequence[int], text: Sequence[bytes]) -> dict[str, Any]:
    contributor = {"type": author.kind}
    if author.model:
        contributor["model_id"] = model_id(author.model)
    said = {
        "actor": author.actor,
        "model": author.model,
        "session": author.session,
        "turn": author.turn,
        "perhaps": list(author.perhaps),
    }
    own = {key: value for key, value in said.items() if value}
    ranges = [
        {"start_line": start + 1, "end_line": end, "content_hash": content_hash(text[start:end])}
        for start, end in _ranges(lines)
    ]
    return {"contributor": contributor, "ranges": ranges} | ({TOOL: own} if own else {})


def spelled(path: str) -> str:
    """Return a path as JSON can carry it: escaped if it is not UTF-8."""
    return path if path.isprintable() else escape_path(path)


def model_id(model: str) -> str:
    """Return a model with its provider, as models.dev names it; unchanged if the provider is unknown."""
    provider = next((name for prefix, name in _PROVIDERS.items() if model.startswith(prefix)), "")
    return (f"{provider}/{model}" if provider and "/" not in model else model)[:_MODEL_MAX_CHARS]


def content_hash(lines: Sequence[bytes]) -> str:
    """Return the hash of lines, as they are in the commit."""
    return f"sha256:{sha256(b''.join(lines)).hexdigest()}"


def _ranges(lines: Sequence[int]) -> list[tuple[int, int]]:
    """Return line numbers as ranges; ends exclusive."""
    found: list[tuple[int, int]] = []
    for line in lines:
        if found and found[-1][1] == line:
            found[-1] = found[-1][0], line + 1
        else:
            found.append((line, line + 1))
    return found


def encode_trace(trace: Trace) -> bytes:
    """The text of a note."""
    return json.dumps(trace, indent=1, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def split_note(data: bytes) -> tuple[Trace | None, bytes]:
    """Find our record in a note; return it, or None, and what else the note contains, which is of others."""
    text = data.decode("utf-8", "surrogateescape")
    start = 0
    while (start := text.find("{", start)) >= 0:
        if start == 0 or text[start - 1] == "\n":
            try:
                found, end = json.JSONDecoder().raw_decode(text, start)
            except (ValueError, RecursionError):
                found, end = None, start
            if is_ours(found):
                rest = text[:start] + text[end:].removeprefix("\n")
                return found, rest.encode("utf-8", "surrogateescape")
        start += 1
    return None, data


def is_ours(value: object) -> bool:
    """Whether a value is a record of Holdfast, with the fields that it reads."""
    if not isinstance(value, dict) or not isinstance(value.get("tool"), dict) or value["tool"].get("name") != TOOL:
        return False
    return isinstance(value.get("files"), list) and isinstance(value.get("vcs"), dict)


def is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two records say the same; when and by which version they were made does not count."""
    return all(one.get(key) == other.get(key) for key in ("version", "vcs", "files"))


def authors_of(trace: Mapping[str, Any]) -> dict[str, FileAuthors]:
    """Read who wrote what from a record, by path as it is spelled there. What makes no sense is left out."""
    found, left = {}, _MOST_LINES  # of all files: a range of a few bytes may name millions
    for file in trace["files"]:
        if isinstance(file, dict) and isinstance(file.get("path"), str):
            lines: dict[int, LineAuthor] = {}
            whole = None
            conversations = file.get("conversations")
            for each in conversations if isinstance(conversations, list) else ():
                if (author := _read_author(each)) is None:
                    continue
                if not each["ranges"]:
                    whole = author
                for part in map(_read_range, each["ranges"]):
                    if len(part) <= left:
                        left -= len(part)
                        lines.update(dict.fromkeys(part, author))
            found[file["path"]] = FileAuthors(file["path"], lines, whole)
    return found


def _read_author(value: Any) -> LineAuthor | None:
    contributor = value.get("contributor") if isinstance(value, dict) else None
    if not isinstance(contributor, dict) or not isinstance(value.get("ranges"), list):
        return None
    own = value.get(TOOL) if isinstance(value.get(TOOL), dict) else {}
    texts = {key: str(own.get(key) or "") for key in ("actor", "model", "session", "turn")}
    said = own.get("perhaps")
    perhaps = tuple(map(str, said)) if isinstance(said, list) else ()
    return LineAuthor(str(contributor.get("type")), **texts, perhaps=perhaps)


def _read_range(value: Any) -> range:
    """The lines of a range, from 0; none if it makes no sense."""
    if not isinstance(value, dict):
        return range(0)
    start, end = value.get("start_line"), value.get("end_line")
    if not isinstance(start, int) or not isinstance(end, int) or not 0 < start <= end <= _MOST_LINES:
        return range(0)
    return range(start - 1, end)


def with_known(authors: Sequence[FileAuthors], before: Mapping[str, FileAuthors]) -> list[FileAuthors]:
    """Keep what an earlier record of the same commit knew and the checkpoints can no longer tell."""
    found = []
    for file in authors:
        old = before.get(spelled(file.path))
        if old is None:
            found.append(file)
            continue
        lines = {line: old.lines.get(line, UNKNOWN) if now == UNKNOWN else now for line, now in file.lines.items()}
        whole = old.whole if file.whole == UNKNOWN and old.whole is not None else file.whole
        found.append(FileAuthors(file.path, lines, whole))
    return found
