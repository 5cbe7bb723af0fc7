"""What coding agents send and store: events, settings, conversations; and what goes over the helper's socket."""

from __future__ import annotations

import json
import os
import socket
from functools import cache
from pathlib import Path
from zlib import crc32

from fuzz.target import folder, target
from holdfast.adapters.agents import protocol
from holdfast.adapters.agents.attribution import (
    AgentSession,
    AgentSessions,
    AgentTurn,
    LastEvent,
    OpenToolCall,
    after_switch,
    apply_event,
    begins_turn,
    find_author,
    is_repeated,
    turn_of_author,
    with_change,
)
from holdfast.adapters.agents.base import AGENT_NAMES, Agent, SettingsPaths, SettingsScope, find_agent
from holdfast.adapters.agents.event import AgentEvent, EventFields, EventKind
from holdfast.adapters.agents.generic import BadLine, read_line
from holdfast.adapters.agents.session_file import SessionFile, read_sessions
from holdfast.adapters.agents.settings.hook_entries import found_entries, with_entries, without_entries
from holdfast.adapters.agents.settings.install import apply_change, plan_install, plan_uninstall
from holdfast.adapters.agents.settings.jsonc import NotJSON, parse
from holdfast.adapters.agents.transcript import capture, model_in
from holdfast.secret_patterns import find_secrets, redact
from holdfast.web.conversation import last_turn, read_conversation, with_rest

_RECORDED = Path(__file__).parents[1] / "unit" / "adapters" / "agents"
_WORDS = ["/opt/hold fast/bin/holdfast", "hook"]
_IN_JSON = [name for name in AGENT_NAMES if name not in ("opencode", "kilo")]


def _streams() -> list[bytes]:
    """Events as the agents sent them: of each agent and kind one."""
    found: dict[tuple[str, object], bytes] = {}
    for path in sorted((_RECORDED / "streams").glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            event = json.loads(line).get("event")
            if event is not None:
                found.setdefault((path.name, event.get("hook_event_name")), json.dumps(event).encode())
    return list(found.values())


@target(_streams, is_json=True)
def hook_event(data: bytes) -> None:
    fields = EventFields.parse(data)
    for name in AGENT_NAMES:
        for environ in ({}, {"CLAUDE_CODE_ENTRYPOINT": "cli", "AI_AGENT": "claude-code_2-1"}):
            event = find_agent(name).read(fields, environ)
            _ = event.actor, event.key
            json.dumps([event.session, event.turn, event.tool, event.subject, event.cwd]).encode()


@target(
    lambda: [b'{"event": "after", "session": "s", "tool": "Bash", "paths": ["a"], "prompt": "do", "agent": "mine"}'],
    is_json=True,
    may_raise=(BadLine,),
)
def generic_hook_line(data: bytes) -> None:
    read_line(data, os.fspath(folder("cwd")))


# ---- Settings ----


@cache
def _agents() -> list[Agent]:
    return [find_agent(name) for name in _IN_JSON]


_SETTINGS = (
    "{}\n",
    '// mine\n{\n  // before\n  "a": 1, // beside\n  /* after */\n  "b": [1, 2,],\n}\n// end\n',
    '{\r\n\t"a": {"b": null},\r\n\t"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}}',
    '{"hooks": {"Stop": []}, "z": "ü \\u00fc {[/*"}',
)


def _settings() -> list[bytes]:
    agents = [(agent, text) for agent in _agents() for text in _SETTINGS]
    return [with_entries(text, agent, agent.entries([*_WORDS, agent.name])).encode() for agent, text in agents] + [
        text.encode() for text in _SETTINGS
    ]


@target(_settings, is_json=True, may_raise=(NotJSON,))
def jsonc(data: bytes) -> None:
    parse(data.decode("utf-8", "replace")).plain()


@target(_settings, is_json=True, may_raise=(NotJSON,), is_slow=True)
def settings_text(data: bytes) -> None:
    """Entries are added and removed again; everything else keeps its meaning, whatever it is."""
    text = data.decode("utf-8", "replace")
    for agent in [_agents()[crc32(data) % len(_agents())]]:  # another for each input
        try:
            without = without_entries(text, agent.name)
            after = with_entries(text, agent, agent.entries([*_WORDS, agent.name]))
        except NotJSON:
            continue
        assert not found_entries(without_entries(after, agent.name), agent.name)
        before = parse(without).plain() if without.strip() else {}
        left = parse(without_entries(after, agent.name)).plain()
        for key in before if isinstance(before, dict) else ():
            assert key == "hooks" or _same(left[key], before[key]), key


def _same(one: object, other: object) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@target(_settings, is_json=True, is_slow=True)
def settings_file(data: bytes) -> None:
    """Installing, and uninstalling at once, gives the bytes of before."""
    home = folder("home")
    places = SettingsPaths(home, {"HOME": os.fspath(home)}, folder("agent-project"))
    agent = find_agent("claude-code")
    path = agent.settings(places, SettingsScope.USER)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    apply_change(plan_install(agent, SettingsScope.USER, places, [*_WORDS, agent.name]), places.environ)
    apply_change(plan_uninstall(agent, SettingsScope.USER, places), places.environ)
    assert path.read_bytes() == data or found_entries(data.decode("utf-8-sig"), agent.name)


@target(
    lambda: [b'{"path": "p", "existed": true, "backup": "before-1", "after": "00", "made": ["/x"]}'],
    is_json=True,
    is_slow=True,
)
def settings_receipt(data: bytes) -> None:
    home = folder("receipts")
    places = SettingsPaths(home, {"HOME": os.fspath(home)}, folder("agent-project"))
    agent = find_agent("claude-code")
    path = agent.settings(places, SettingsScope.USER)
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"{}")
        apply_change(plan_install(agent, SettingsScope.USER, places, [*_WORDS, agent.name]), places.environ)
    [receipt] = home.rglob("receipt.json")
    receipt.write_bytes(data)
    plan_uninstall(agent, SettingsScope.USER, places)
    plan_install(agent, SettingsScope.USER, places, [*_WORDS, agent.name])


# ---- Sessions and conversations ----


def _sessions() -> list[bytes]:
    own = SessionFile(folder("sessions-made"))
    call = OpenToolCall("u", "Bash", "claude-code", "")
    turn = AgentTurn("t", "do it", 1, True, ("sub",))
    session = AgentSession("claude-code", "s", 1.0, open=(call,), background=(call,), seen=("a",), turns=(turn,))
    own.write(AgentSessions({"claude-code s": session}, {"claude-code": LastEvent(1.0, "Stop")}, "main"))
    [path] = list(folder("sessions-made").rglob("windows-*"))
    return [path.read_bytes().split(b"\n", 1)[1].rstrip(b"\n")]


@target(_sessions, is_json=True)
def agent_sessions(data: bytes) -> None:
    """The sessions on disk, behind their checksum."""
    own = folder("sessions")
    (own / "windows-1").write_bytes(b"%08x\n%s\n" % (crc32(data), data))
    known = read_sessions(own)
    for kind in EventKind:
        for key in known.sessions:
            agent, _, session = str(key).partition(" ")
            event = AgentEvent(agent, kind, "", session=session, tool="Bash", tool_use="u", sub_id="sub", turn="t")
            author = after_switch(known, find_author(known, event, owner="1"), "other")
            is_repeated(known, event)
            begins_turn(known, event, now=2.0)
            turn_of_author(known, author)
            with_change(known, author)
            apply_event(known, event, now=2.0, owner="1", is_alive=lambda _: True)


def _conversations() -> list[bytes]:
    claude = [
        {"type": "user", "uuid": "1", "cwd": "/somewhere", "message": {"role": "user", "content": "do it"}},
        {
            "type": "assistant",
            "message": {
                "model": "opus",
                "content": [
                    {"type": "text", "text": "yes"},
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "tool_use", "name": "Bash", "input": {"command": "ls"}},
                ],
            },
        },
        {"type": "user", "message": {"content": [{"type": "tool_result", "content": [{"type": "text", "text": "a"}]}]}},
    ]
    codex = [
        {"type": "session_meta", "payload": {"id": "1", "cwd": "/x", "model": "gpt"}},
        {
            "type": "response_item",
            "payload": {"type": "function_call", "name": "shell", "arguments": '{"command": ["ls"]}'},
        },
        {"type": "response_item", "payload": {"type": "function_call_output", "output": {"content": "a"}}},
        {"type": "response_item", "payload": {"type": "message", "role": "assistant", "content": [{"text": "done"}]}},
    ]
    gemini = {
        "sessionId": "1",
        "messages": [{"type": "gemini", "content": [{"functionCall": {"name": "x", "args": {}}}]}],
    }
    lines = [b"".join(json.dumps(line).encode() + b"\n" for line in each) for each in (claude, codex)]
    singly = [json.dumps(line).encode() + b"\n" for line in (*claude, *codex)]
    return [*lines, *singly, json.dumps(gemini).encode(), b"key = AKIAQYLPMN5HHHFPZAM2 and password: hunter2hunter2\n"]


@target(_conversations, is_json=True)
def conversation(data: bytes) -> None:
    """The file of a conversation: saved, redacted, shown."""
    for suffix in (".jsonl", ".json"):
        path = folder("conversations") / f"one{suffix}"
        path.write_bytes(data)
        event = AgentEvent("claude-code", EventKind.STOP, "Stop", session="s", transcript=os.fspath(path))
        for redacts in (False, True):
            found = capture(event, Path("/somewhere"), redacts=redacts)
            model_in(found)
            shown = read_conversation(found, "/somewhere")
            with_rest(last_turn(shown).messages, shown.messages)


@target(
    lambda: [
        b"key = AKIAQYLPMN5HHHFPZAM2\n",
        b'{"password": "correct horse battery", "token": "ghp_' + b"a1B2" * 9 + b'"}',
        b"-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\npostgres://u:secretpass@h/d",
    ]
)
def secrets(data: bytes) -> None:
    find_secrets(data)
    find_secrets(data, is_json=True)
    redact(data.decode("utf-8", "surrogateescape"))


# ---- The helper ----


def _sent(data: bytes) -> socket.socket:
    """A socket whose other end sent some bytes and was closed."""
    ours, theirs = socket.socketpair()
    theirs.sendall(data[:100_000])
    theirs.close()
    return ours


@target(
    lambda: [
        protocol.pack_request([b"id", b"agent", b"Stop", b"/", b"1", b"2", b"A=b", b"{}"]),
        protocol.pack_request([b"id", b"command", b"A=b\0", b"log\0"]),
        b"1 2 3 4\nabcdefghij",
    ],
    may_raise=(ValueError,),
)
def helper_request(data: bytes) -> None:
    """ValueError for bad lengths, as it says."""
    with _sent(data) as connection:
        protocol.receive_request(connection)


@target(lambda: [protocol.pack_reply(b"{}"), protocol.pack_reply(None)])
def helper_reply(data: bytes) -> None:
    with _sent(data) as connection:
        protocol.receive_reply(connection)
