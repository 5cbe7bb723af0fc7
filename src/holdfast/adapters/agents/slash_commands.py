"""Commands that people type inside an agent, such as `/holdfast:undo`: what each runs, and the files that define them.

Each file runs one command, `holdfast slash AGENT NAME`, and has the agent show its output. What the user types after
the name never becomes part of a shell command as it is: it is escaped by the agent (Gemini CLI, Qwen Code), passed on
stdin in a here-document whose end nobody can guess (Claude Code), or passed without a shell (opencode, Kilo, Droid).
Agents that cannot run a command themselves (Codex, Cursor) ask the model to run it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.errors import Refused


class SlashCommand(NamedTuple):
    """One command, as an agent lists it."""

    name: str
    description: str
    argument: str = ""
    """What the user may type after it; empty if nothing."""


SLASH_COMMANDS = (
    SlashCommand("undo", "Undo what the agent changed in its last turn"),
    SlashCommand("timeline", "Show the latest checkpoints"),
    SlashCommand("restore", "Bring the folder back to a checkpoint", "CHECKPOINT"),
    SlashCommand("status", "Show the last checkpoint, what changed since, and problems"),
)
FIRST_WORDS = "This is a command of Holdfast."
"""The text of each command begins with this; some agents report it as the prompt."""
SHOW = "Show the user its output below as it is, in a code block. Do nothing else."
TOKEN = "@TOKEN@"
"""Stands for the end of a here-document, which is random."""
_SWALLOWED = (
    "$99999"  # opencode puts the 99,999th word here; without it, it would add what was typed, and run !`…` in it
)
_TYPED = re.compile(r"\s*[/$]holdfast[:/-](?:undo|timeline|restore|status)\b")
_SAFE_PATH = re.compile(r"[\w./@+=, -]+")
_MAX_ARGUMENTS = 50


def is_slash_command(prompt: str) -> bool:
    """Whether a prompt is one of these commands. It is not a turn of its own: `undo` means the turn before it."""
    return prompt.lstrip().startswith(FIRST_WORDS) or _TYPED.match(prompt) is not None


def command_of(agent: str, name: str, text: str) -> list[str]:
    """The words of the command that a slash command runs. Refused if the text is not the name of a checkpoint."""
    if name == "undo":
        return ["undo", f"--agent={agent}", "--yes"]
    if name == "status":
        return ["status"]
    try:
        words = shlex.split(text)
    except ValueError:
        raise Refused(f"{text!r} has an open quotation mark", hint="Close it, or leave it out.") from None
    if name == "timeline" or not words:
        return ["log", "-n", "10"]
    if len(words) > _MAX_ARGUMENTS or any(word.startswith("-") or not word for word in words):
        raise Refused("takes a checkpoint and perhaps paths, no options", hint="Type it like this: restore a14 src/")
    return ["restore", *words]


def markdown_with_stdin(command: SlashCommand, program: Sequence[str]) -> str:
    """For Claude Code. Its arguments are pasted into the command, so they stand in a here-document."""
    line = _line(program, command)
    shell = f"{line} -"
    if command.argument:
        block = f"!`{shell} <<'HOLDFAST_{TOKEN}'\n$ARGUMENTS\nHOLDFAST_{TOKEN}`"
    else:
        block = f"!`{line}`"
    head = {
        "description": command.description,
        **({"argument-hint": command.argument} if command.argument else {}),
        "allowed-tools": f"Bash({shell if command.argument else line})",
        "disable-model-invocation": "true",
    }
    return _markdown(head, f"{FIRST_WORDS} {SHOW}\n\n{block}\n")


def markdown_with_braces(command: SlashCommand, program: Sequence[str]) -> str:
    """For Qwen Code, which escapes `{{args}}` inside of `!{…}`."""
    return _markdown({"description": command.description}, f"{FIRST_WORDS} {SHOW}\n\n{_braces(command, program)}\n")


def toml(command: SlashCommand, program: Sequence[str]) -> str:
    """For Gemini CLI, which escapes `{{args}}` inside of `!{…}`."""
    return (
        f'description = "{command.description}"\n'
        f"prompt = '''\n{FIRST_WORDS} {SHOW}\n\n{_braces(command, program)}\n'''\n"
    )


def markdown_for_plugin(command: SlashCommand) -> str:
    """For opencode and Kilo: the plugin replaces this text by the output."""
    return _markdown(
        {"description": command.description},
        f"{FIRST_WORDS} Its plugin did not run it. Tell the user to run `holdfast doctor`, and do nothing else."
        f" {_SWALLOWED}\n",
    )


def markdown_for_model(command: SlashCommand, program: Sequence[str], head: dict[str, str] | None = None) -> str:
    """For agents that cannot run a command themselves: the model does."""
    line = _line(program, command) + (" --" if command.argument else "")
    more = (
        f" Put what the user typed after the name of this command at its end, as one word in single quotes; if that"
        f" contains a single quote, do not run anything, and say so. The user types: {command.argument}"
        if command.argument
        else ""
    )
    text = (
        f"{FIRST_WORDS} Run exactly this in a shell, once, in the project folder:{more}\n\n    {line}\n\n"
        "Then show the user its output as it is, in a code block. Do nothing else: change no file.\n"
    )
    return _markdown(head, text) if head else text


def script(command: SlashCommand, program: Sequence[str]) -> str:
    """For Droid, which runs a script and shows its output."""
    return f'#!/bin/sh\n# {command.description}\nexec {_line(program, command)} -- "$*"\n'


def _line(program: Sequence[str], command: SlashCommand) -> str:
    if not _SAFE_PATH.fullmatch(program[0]):
        raise Refused(f"{program[0]} has characters that commands of agents cannot contain")
    return shlex.join([*program, command.name])


def _braces(command: SlashCommand, program: Sequence[str]) -> str:
    return f"!{{{_line(program, command)}{' -- {{args}}' if command.argument else ''}}}"


def _markdown(head: dict[str, str], text: str) -> str:
    lines = "".join(f"{key}: {value}\n" for key, value in head.items())
    return f"---\n{lines}---\n\n{text}"
