"""opencode: it cannot run commands as hooks, so a small plugin passes its events on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.adapters.agents.base import Agent, HookEntry, SettingsPaths, SettingsScope, read_common
from holdfast.adapters.agents.event import AgentEvent, EventFields, EventKind
from holdfast.adapters.agents.slash_commands import FIRST_WORDS, SHOW, SLASH_COMMANDS, markdown_for_plugin

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
// Made by `holdfast install %(agent)s`; `holdfast uninstall %(agent)s` removes it.
// Hands events to Holdfast, which saves a checkpoint when files changed; never fails, never speaks. Runs its commands.
import { spawn } from "node:child_process"

const COMMAND = %(command)s
const SLASH_COMMANDS = %(slash_commands)s

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

// without a shell: what the user typed is one argument
const run = (words, cwd) =>
  new Promise((resolve) => {
    let text = ""
    try {
      const child = spawn(COMMAND[0], words, { cwd, stdio: ["ignore", "pipe", "pipe"] })
      for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (text += data))
      child.on("error", (error) => resolve(String(error)))
      child.on("close", () => resolve(text))
    } catch (error) {
      resolve(String(error))
    }
  })

export const Holdfast = async ({ directory, worktree }) => {
  const common = { cwd: directory, worktree }
  const parents = {}
  const agents = {}
  const root = (id) => (parents[id] ? root(parents[id]) : id)
  // a sub-agent has a session of its own, which is part of the session that started it
  const sub = (id) => ({ sessionID: root(id), agent_id: id, agent_type: agents[id] })
  const whose = (id) => (parents[id] ? sub(id) : { sessionID: id })
  return {
    "command.execute.before": async (input, output) => {
      const name = SLASH_COMMANDS[input?.command]
      if (!name) return
      const text = await run(["slash", %(name)s, name, "--", input.arguments ?? ""], directory)
      output.parts.splice(0, output.parts.length, { type: "text", text: `%(show)s\n\n${text}` })
    },
    "chat.message": async (input, output) => {
      if (input?.agent) agents[input.sessionID] = input.agent
      const prompt = output?.parts?.find((part) => part?.type === "text")?.text
      await tell({ ...common, event: "chat.message", ...whose(input?.sessionID), turn_id: input?.messageID, prompt })
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


def _settings(places: SettingsPaths, scope: SettingsScope) -> Path:
    folder = places.data("opencode") if scope is SettingsScope.USER else places.project / ".opencode"
    return folder / "plugins" / "holdfast.js"


def _entries(words: Sequence[str]) -> list[HookEntry]:
    return []


def plugin(agent: str, words: Sequence[str]) -> str:
    """The plugin, also for Kilo, which has the same interface."""
    return _PLUGIN % {
        "agent": agent,
        "name": json.dumps(agent),
        "command": json.dumps(list(words)),
        "slash_commands": json.dumps({f"holdfast-{each.name}": each.name for each in SLASH_COMMANDS}),
        "show": f"{FIRST_WORDS} {SHOW}",
    }


def _own_file(words: Sequence[str]) -> str:
    return plugin(NAME, words)


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


def _commands(places: SettingsPaths, scope: SettingsScope, program: Sequence[str]) -> dict[Path, str]:
    folder = _settings(places, scope).parents[1] / "commands"
    return {folder / f"holdfast-{each.name}.md": markdown_for_plugin(each) for each in SLASH_COMMANDS}


AGENT = Agent(
    name=NAME,
    title="opencode",
    settings=_settings,
    entries=_entries,
    read=_read,
    frame={},
    own_file=_own_file,
    speaks=False,
    commands=_commands,
    not_covered=(
        "The conversation is in a database that all projects share: it is not saved.",
        "Files outside the project folder are not saved.",
    ),
)
