"""opencode: it cannot run commands as hooks, so a small plugin passes its events on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.adapters.agents.base import Agent, HookEntry, Places, SettingsScope, read_common
from holdfast.adapters.agents.event import AgentEvent, EventFields, EventKind

NAME = "opencode"

_KINDS = {
    "session.created": EventKind.START,
    "chat.message": EventKind.PROMPT,
    "tool.execute.before": EventKind.BEFORE,
    "tool.execute.after": EventKind.AFTER,
    "session.compacting": EventKind.COMPACT,
    "session.idle": EventKind.STOP,
    "session.error": EventKind.STOP,
    "session.deleted": EventKind.END,
}
_OF_A_SUB_AGENT = {
    EventKind.START: EventKind.SUB_START,
    EventKind.PROMPT: EventKind.SUB_START,
    EventKind.STOP: EventKind.SUB_STOP,
    EventKind.END: EventKind.SUB_STOP,
}
_READING = frozenset({"read", "grep", "glob", "list", "webfetch", "websearch", "todoread", "todowrite", "question"})

_PLUGIN = """\
// Made by `holdfast install opencode`; `holdfast uninstall opencode` removes it.
// Hands opencode's events to Holdfast, which saves a checkpoint when files changed. Never fails, never speaks.
import { spawn } from "node:child_process"

const COMMAND = %(command)s

const tell = (fields) =>
  new Promise((resolve) => {
    try {
      const child = spawn(COMMAND[0], COMMAND.slice(1), { stdio: ["pipe", "ignore", "ignore"] })
      const timer = setTimeout(resolve, 60000)
      const done = () => (clearTimeout(timer), resolve())
      child.on("error", done)
      child.on("exit", done)
      child.stdin.on("error", () => {})
      child.stdin.end(JSON.stringify(fields))
    } catch {
      resolve()
    }
  })

export const Holdfast = async ({ directory, worktree }) => {
  const common = { cwd: directory, worktree }
  const parents = {}
  const agents = {}
  const root = (id) => (parents[id] ? root(parents[id]) : id)
  // a sub-agent has a session of its own, which is part of that of whoever sent it
  const sub = (id) => ({ sessionID: root(id), agent_id: id, agent_type: agents[id] })
  const whose = (id) => (parents[id] ? sub(id) : { sessionID: id })
  return {
    "chat.message": async (input) => {
      if (input?.agent) agents[input.sessionID] = input.agent
      await tell({ ...common, event: "chat.message", ...whose(input?.sessionID), turn_id: input?.messageID })
    },
    "tool.execute.before": async (input, output) => {
      const { tool, sessionID, callID } = input
      await tell({ ...common, event: "tool.execute.before", tool, ...whose(sessionID), callID, args: output?.args })
    },
    "tool.execute.after": async (input) => {
      const { tool, sessionID, callID, args } = input
      await tell({ ...common, event: "tool.execute.after", tool, ...whose(sessionID), callID, args })
    },
    "experimental.session.compacting": async (input) => {
      await tell({ ...common, event: "session.compacting", ...whose(input?.sessionID) })
    },
    event: async ({ event }) => {
      if (!["session.created", "session.idle", "session.error", "session.deleted"].includes(event?.type)) return
      const properties = event.properties ?? {}
      const id = properties.sessionID ?? properties.info?.id
      if (properties.info?.parentID) parents[id] = properties.info.parentID
      await tell({ ...common, event: event.type, ...whose(id) })
    },
  }
}
"""


def _settings(places: Places, scope: SettingsScope) -> Path:
    folder = _data(places) if scope is SettingsScope.USER else places.project / ".opencode"
    return folder / "plugins" / "holdfast.js"


def _data(places: Places) -> Path:
    if chosen := places.environ.get("OPENCODE_CONFIG_DIR"):
        return Path(chosen)
    return places.chosen("XDG_CONFIG_HOME", ".config") / "opencode"


def _entries(words: Sequence[str]) -> list[HookEntry]:
    return []


def _own_file(words: Sequence[str]) -> str:
    return _PLUGIN % {"command": json.dumps(list(words))}


def _read(fields: EventFields, environ: Mapping[str, str]) -> AgentEvent:
    worktree = fields.text("worktree")
    event = read_common(
        NAME,
        fields,
        kinds=_KINDS,
        reading=_READING,
        delegating=frozenset({"task"}),
        folders=(worktree if worktree != "/" else "",),
    )
    return replace(event, kind=_OF_A_SUB_AGENT.get(event.kind, event.kind)) if event.sub_id else event


AGENT = Agent(
    name=NAME,
    title="opencode",
    settings=_settings,
    entries=_entries,
    read=_read,
    data=_data,
    frame={},
    own_file=_own_file,
    speaks=False,
    not_covered=(
        "The conversation is in a database that all projects share: it is not saved.",
        "Files outside the project folder are not saved.",
    ),
)
