"""opencode: it has no hooks that are commands, so a small plugin of ours hands its events on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.adapters.agents.agent import Agent, Entry, Places, Scope, read_common
from holdfast.adapters.agents.event import Event, Kind
from holdfast.adapters.agents.fields import Fields

NAME = "opencode"

_KINDS = {
    "session.created": Kind.START,
    "chat.message": Kind.PROMPT,
    "tool.execute.before": Kind.BEFORE,
    "tool.execute.after": Kind.AFTER,
    "session.compacting": Kind.COMPACT,
    "session.idle": Kind.STOP,
    "session.error": Kind.STOP,
    "session.deleted": Kind.END,
}
_OF_A_SUB_AGENT = {
    Kind.START: Kind.SUB_START,
    Kind.PROMPT: Kind.SUB_START,
    Kind.STOP: Kind.SUB_STOP,
    Kind.END: Kind.SUB_STOP,
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


def _settings(places: Places, scope: Scope) -> Path:
    folder = _data(places) if scope is Scope.USER else places.project / ".opencode"
    return folder / "plugins" / "holdfast.js"


def _data(places: Places) -> Path:
    if chosen := places.environ.get("OPENCODE_CONFIG_DIR"):
        return Path(chosen)
    return places.chosen("XDG_CONFIG_HOME", ".config") / "opencode"


def _entries(words: Sequence[str]) -> list[Entry]:
    return []


def _own_file(words: Sequence[str]) -> str:
    return _PLUGIN % {"command": json.dumps(list(words))}


def _read(fields: Fields, environ: Mapping[str, str]) -> Event:
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
        "The conversation is in a database that all projects share: it is not kept.",
        "Files outside the project folder are not saved.",
    ),
)
