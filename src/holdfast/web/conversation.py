"""The conversation of a checkpoint as messages, whichever agent wrote it; what is not understood is left out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

TEXT_MAX_CHARS = 20_000
"""A longer message is cut where it is shown."""
_LINES_MAX = 20_000
_TOOL_CHARS = 4_000
_NAMES = ("file_path", "path", "command", "pattern", "url", "query", "description")


class Message(NamedTuple):
    """Something that was said, or a call of a tool."""

    role: str
    """`user`, `assistant`, `thinking`, `tool` or `result`."""
    text: str
    title: str = ""
    """Of a tool: its name and what it is about."""
    is_cut: bool = False


class Conversation(NamedTuple):
    """The messages of a turn, and how many came before them."""

    messages: list[Message]
    earlier: int
    note: str = ""
    """Why there is nothing, if it is known."""


def read_conversation(state: Any, folder: str = "") -> Conversation:
    """The messages of a state. Paths in `folder` are shown from there."""
    note = str(state.get("missing") or "") if isinstance(state, dict) else ""
    messages = _with_results(each for each in _messages(state) if each.text or each.title)
    if folder:
        messages = [each._replace(title=each.title.replace(f"{folder}/", "")) for each in messages]
    return Conversation(messages, 0, note)


def last_turn(conversation: Conversation) -> Conversation:
    """The messages since the last thing that the user said."""
    said = _prompts_at(conversation.messages)
    start = said[-1] if said else 0
    return conversation._replace(messages=conversation.messages[start:], earlier=start)


def with_rest(messages: list[Message], later: list[Message]) -> list[Message]:
    """Messages up to the end of their last turn, as a later state of the conversation has them.

    What an agent does after its last change is in no checkpoint of the turn. Unchanged if the later one is another
    conversation.
    """
    said, said_later = _prompts_at(messages), _prompts_at(later)
    shared = zip(said, said_later, strict=False)
    if not said or len(said) > len(said_later) or any(messages[a].text != later[b].text for a, b in shared):
        return messages
    end = said_later[len(said)] if len(said) < len(said_later) else len(later)
    return [*messages[: said[-1]], *later[said_later[len(said) - 1] : end]]


def _prompts_at(messages: list[Message]) -> list[int]:
    return [at for at, each in enumerate(messages) if each.role == "user"]


def with_closing(messages: list[Message], closing: str) -> list[Message]:
    """Add what the agent said at the end of a turn, which no checkpoint of the turn may have, unless it is there."""
    start = closing.rstrip("…").strip()
    if not start or any(each.role == "assistant" and each.text.startswith(start) for each in messages):
        return messages
    return [*messages, Message("assistant", closing)]


def _messages(state: Any) -> Iterator[Message]:
    if isinstance(state, list):
        entries: Iterable[Any] = state
    elif isinstance(state, dict) and isinstance(state.get("text"), str):
        entries = _lines(state["text"])
    elif isinstance(state, dict) and isinstance(state.get("messages"), list):
        entries = state["messages"]
    else:
        return
    for entry in entries:
        if isinstance(entry, dict):
            yield from _of_entry(entry)


def _with_results(messages: Iterable[Message]) -> list[Message]:
    """The messages, with the result of a tool below its call where one follows the other."""
    found: list[Message] = []
    for each in messages:
        if each.role == "result" and found and found[-1].role == "tool":
            call = found.pop()
            each = call._replace(text="\n\n".join(filter(None, (call.text, each.text))), is_cut=each.is_cut)
        found.append(each)
    return found


def _lines(text: str) -> Iterator[Any]:
    if text.lstrip().startswith("{") and "\n{" not in text.lstrip():
        try:
            whole = json.loads(text)
        except (ValueError, RecursionError):
            return
        yield from whole["messages"] if isinstance(whole.get("messages"), list) else [whole]
        return
    for number, line in enumerate(text.splitlines()):
        if number > _LINES_MAX:
            return
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            continue


def _of_entry(entry: dict[str, Any]) -> Iterator[Message]:
    """One line of a file: the message is in it, in `message`, in `payload` or in `data`."""
    if entry.get("isMeta") or entry.get("isSidechain"):
        return
    inner = next((entry[name] for name in ("message", "payload", "data") if isinstance(entry.get(name), dict)), entry)
    kind = str(inner.get("type") or entry.get("type") or "")
    if kind in ("function_call", "custom_tool_call", "local_shell_call"):
        yield _tool(str(inner.get("name") or kind), inner.get("arguments") or inner.get("input") or inner.get("action"))
        return
    if kind in ("function_call_output", "custom_tool_call_output"):
        yield _cut(Message("result", _text(inner.get("output"))))
        return
    role = str(inner.get("role") or entry.get("type") or "")
    role = {"gemini": "assistant", "model": "assistant", "user.message": "user", "assistant.message": "assistant"}.get(
        role, role
    )
    if role not in ("user", "assistant", "tool"):
        return
    content = inner.get("content", inner.get("parts"))
    for block in content if isinstance(content, list) else [content]:
        yield from _of_block("result" if role == "tool" else role, block)


def _of_block(role: str, block: Any) -> Iterator[Message]:
    if isinstance(block, str):
        yield _cut(Message(role, block.strip()))
        return
    if not isinstance(block, dict):
        return
    kind = str(block.get("type") or "")
    if kind == "tool_use" or "functionCall" in block:
        call = block.get("functionCall") if isinstance(block.get("functionCall"), dict) else block
        assert isinstance(call, dict)
        yield _tool(str(call.get("name") or "tool"), call.get("input") or call.get("args"))
    elif kind == "tool_result":
        yield _cut(Message("result", _text(block.get("content"))))
    elif kind == "thinking":
        yield _cut(Message("thinking", str(block.get("thinking") or "").strip()))
    elif isinstance(block.get("text"), str):
        yield _cut(Message(role, block["text"].strip()))


def _tool(name: str, arguments: Any) -> Message:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = {"command": arguments}
    about = ""
    if isinstance(arguments, dict):
        about = next((str(arguments[each]) for each in _NAMES if arguments.get(each)), "")
    text = json.dumps(arguments, indent=2, ensure_ascii=False)[:_TOOL_CHARS] if arguments else ""
    return Message("tool", text, f"{name}: {about[:200]}" if about else name)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(str(each["text"]) for each in value if isinstance(each, dict) and "text" in each)
    return "" if value is None else json.dumps(value, indent=2, ensure_ascii=False)


def _cut(message: Message) -> Message:
    if len(message.text) <= TEXT_MAX_CHARS:
        return message
    return message._replace(text=message.text[:TEXT_MAX_CHARS], is_cut=True)
