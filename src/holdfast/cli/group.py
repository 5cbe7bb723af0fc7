"""The click group: global options, and commands whose files are imported only when they are run."""

from __future__ import annotations

import importlib
import os
import re
from typing import TYPE_CHECKING, Any

import click

from holdfast import __version__
from holdfast.cli import streams
from holdfast.cli.command import output_options, with_context
from holdfast.cli.context import App
from holdfast.cli.exit_codes import Exit
from holdfast.escaping import shell_word

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SECTIONS = {
    "Save and go back": {
        "init": "Create a store for this folder.",
        "save": "Save a checkpoint of the folder.",
        "status": "Show the last save, what changed since, and problems.",
        "log": "List checkpoints, newest first.",
        "show": "Show one checkpoint in full.",
        "cat": "Print files of a checkpoint, byte for byte.",
        "diff": "Show what changed between two checkpoints, or since one.",
        "restore": "Bring the folder back to a checkpoint.",
        "undo": "Undo the last restore.",
        "redo": "Redo the restore that was last undone.",
    },
    "Inspect": {
        "blame": "Show who wrote each line of a file.",
        "notes": "Write who wrote which lines of a commit, as git notes.",
        "search": "Find when a text was added and when it was removed.",
        "why": "Show whether checkpoints contain a path, and which rule decides.",
        "check": "Run the check command on a checkpoint; mark it green or red.",
        "bisect": "Find the first checkpoint at which a command fails.",
        "git": "Find branches and stashes that git lost; rescue them.",
        "export": "Write a checkpoint's files into another folder.",
        "report": "Write a session into one HTML file, with secrets redacted.",
        "ui": "Show checkpoints in the browser: timeline, diffs, take back.",
    },
    "Try things safely": {
        "guard": "Save, run a command, and restore if it fails.",
        "watch": "Save a checkpoint whenever the folder has changed.",
        "fork": "Continue from a checkpoint in another folder.",
        "adopt": "Bring a fork's files and state back into the workspace.",
    },
    "Coding agents": {
        "install": "Set up a coding agent to save checkpoints by itself.",
        "uninstall": "Remove the hooks from an agent's settings.",
        "doctor": "Check whether the hooks of coding agents work here.",
        "mcp": "Serve checkpoints to an agent as tools (MCP).",
    },
    "Graphs, training runs, indexes": {
        "import": "Import the checkpoints that another tool made.",
        "copy": "Copy the states of a flow store to another, unchanged.",
        "training": "Inspect the checkpoints of a training run.",
        "index": "Turn documents into an index that can be searched.",
    },
    "Keep checkpoints, free space": {
        "pin": "Pin a checkpoint: prune never deletes it.",
        "rm": "Delete checkpoints for good.",
        "prune": "Delete checkpoints that no rule keeps, and free disk space.",
        "secrets": "List keys and passwords that checkpoints contain.",
        "purge": "Remove a path's content from every checkpoint, for good.",
        "usage": "Show what uses disk space in the store.",
        "compact": "Make the store as small as possible.",
        "verify": "Read every byte of the store, and report damage.",
    },
    "This installation": {
        "where": "Show where the checkpoints are stored.",
        "workspaces": "List every folder that has checkpoints on this computer.",
        "config": "Show the configuration, and where each value comes from.",
        "completion": "Print a script for completion in your shell.",
        "demo": "Save, break and restore a small project, and check the result.",
    },
}
"""By name, the first line of its help: the list of all commands is shown without loading one of them."""
COMMANDS = {name: line for section in SECTIONS.values() for name, line in section.items()}
_WIDEST = max(map(len, COMMANDS))
_HIDDEN = ("hook", "slash")  # for programs
_KEYWORDS = ("import",)  # of Python: the file and the function have an underscore at the end
_ELSEWHERE = {
    "add": "save", "commit": "save", "create": "save", "checkpoint": "save", "snapshot": "save", "stash": "save",
    "list": "log", "ls": "log", "history": "log", "timeline": "log", "info": "show", "print": "cat",
    "checkout": "restore", "rewind": "restore", "reset": "restore", "rollback": "restore", "revert": "restore",
    "switch": "restore", "load": "restore", "stores": "workspaces", "projects": "workspaces", "repos": "workspaces",
    "delete": "rm", "remove": "rm", "unpin": "pin --off", "clean": "prune", "forget": "prune", "gc": "prune",
    "check": "verify", "fsck": "verify", "validate": "verify", "find": "search", "grep": "search",
    "tag": "save --name", "branch": "fork", "worktree": "fork", "merge": "adopt", "annotate": "blame",
    "st": "status", "run": "guard", "exec": "guard", "test": "check",
    "op": "log --all", "reflog": "log --all", "evolog": "log", "whatchanged": "log --stat", "checkpoints": "log",
    "snapshots": "log", "sessions": "log", "new": "save", "describe": "save -m", "amend": "save", "backup": "save",
    "abandon": "rm", "drop": "rm", "recover": "restore", "goto": "restore", "jump": "restore", "back": "undo",
    "prev": "undo", "next": "redo", "compare": "diff", "head": "show", "du": "usage", "size": "usage", "space": "usage",
    "cleanup": "prune", "optimize": "compact", "repack": "compact", "hooks": "doctor", "agents": "doctor",
    "settings": "config", "setup": "install", "tui": "ui", "gui": "ui", "open": "ui", "clone": "fork",
    "web": "ui", "serve": "ui", "browse": "ui", "version": "--version",
}  # fmt: skip
"""What other tools call it."""
_BELOW: dict[tuple[str, ...], str] = {
    ("stash", "pop"): "restore", ("stash", "apply"): "restore", ("stash", "list"): "log", ("stash", "show"): "show",
    ("stash", "drop"): "rm", ("op", "undo"): "undo", ("op", "restore"): "restore", ("session", "list"): "log",
}  # fmt: skip
"""What other tools call it in two words."""
_ALONE = (
    *("add", "stash", "branch", "worktree", "merge", "op", "reflog", "new", "amend", "clone", "hooks", "agents"),
    *("back", "prev", "next", "sessions", "setup", "settings"),
)
"""The words after these mean something else than they would here."""
_HEAD = r"\bHEAD\b(?P<tilde>~(?P<back>\d*))?(?P<carets>\^*)"
_FOR_GOOD = ("purge", "rm", "prune", "compact")
_SURELY = 0.8
"""How near a misspelt word must be to a command that deletes."""
_WORDS = {"--help": "", "--hard": "", "--soft": "", "--mixed": "", "-a": "", "-am": "-m"}
"""Words after the others, and what stands for them here."""


class LazyGroup(click.Group):
    """Finds a command in the file of its name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            streams.note(ctx.get_help())
            ctx.exit(Exit.USAGE)
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        return with_context(ctx, lambda: super(LazyGroup, self).parse_args(ctx, args))

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by what they are for."""
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{_WIDEST}}", line) for name, line in section.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS and cmd_name not in _HIDDEN:
            return None
        name = f"{cmd_name}_" if cmd_name in _KEYWORDS else cmd_name
        found: click.Command = getattr(importlib.import_module(f"holdfast.cli.commands.{name}"), name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and name not in _HIDDEN and not name.startswith("-"):
            import difflib  # start-up cost, for a misspelt command only

            two = (name, *args[1:2])
            if (ours := _BELOW.get(two)) is not None:
                raise click.UsageError(f"there is no command {' '.join(two)!r}; use: {_typed(ours, args[2:])}", ctx)
            if (ours := _ELSEWHERE.get(name)) is not None:
                rest = [] if name in _ALONE else args[1:]
                raise click.UsageError(f"there is no command {name!r}; use: {_typed(ours, rest)}", ctx)
            near = difflib.get_close_matches(name, COMMANDS, n=1)
            if near and near[0] in _FOR_GOOD:
                near = difflib.get_close_matches(name, _FOR_GOOD, n=1, cutoff=_SURELY)
            raise click.UsageError(
                f"there is no command {name!r}" + (f"; did you mean {near[0]}?" if near else ""), ctx
            )
        return super().resolve_command(ctx, args)


def _typed(ours: str, rest: list[str]) -> str:
    """The command as it is typed here, with the words that followed."""
    kept = [_WORDS.get(word, re.sub(_HEAD, _latest, word)) for word in rest]
    return " ".join(["holdfast", ours, *(shell_word(word) for word in kept if word)])


def _latest(head: re.Match[str]) -> str:
    """`latest` for git's `HEAD`, `latest~2` for `HEAD~2` and `HEAD^^`."""
    back = int(head["back"] or 1) if head["tilde"] else len(head["carets"])
    return f"latest~{back}" if back else "latest"


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    scan = None
    if streams.settings.verbose:
        from holdfast.scan.sweep import describe  # start-up cost, only when it is asked for

        scan = describe()
    if ctx.params.get("json"):
        streams.document({"version": __version__} | ({"scan": scan} if scan else {}))
    else:
        streams.answer(f"holdfast {__version__}")
        if scan:
            streams.answer(f"scan: {scan}")
    ctx.exit()


def _folder(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from holdfast.cli.completion import complete_folder  # only while a shell completes a word

    return complete_folder(ctx, param, incomplete)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "-C",
    "--directory",
    metavar="PATH",
    help="The workspace. [default: the nearest folder with a store]",
    shell_complete=_folder,
)
@click.option(
    "--store",
    metavar="PATH",
    help="The folder of the store. [default: chosen in your state folder]",
    shell_complete=_folder,
)
@click.option("--allow-home", is_flag=True, help="Allow the home folder as a workspace.")
@click.option("--trust-store", is_flag=True, help="Use a store that other users own, or can read or write.")
@click.option("--json", is_flag=True, is_eager=True, help="Print one JSON document; may also follow the command.")
@click.option("--version", is_flag=True, expose_value=False, callback=_version, help="Print the version.")
@click.pass_context
def group(ctx: click.Context, /, **options: Any) -> None:
    """Keep every good state of a folder, and bring any of them back exactly.

    \b
    holdfast save "before the refactoring"
    holdfast log
    holdfast restore latest
    holdfast undo

    A checkpoint is named by its id (a14), its name, latest, latest~2, or a time (@10m, @14:05, @yesterday).
    """
    for name, flag in (("directory", "-C"), ("store", "--store")):
        if options[name] == "":  # an empty variable must not mean the folder one happens to stand in
            raise click.UsageError(f"{flag} is empty", ctx)
        if options[name]:  # a shell expands -C ~/x, but not --directory=~/x
            options[name] = os.path.expanduser(options[name])
    ctx.obj = App(**options)
    ctx.call_on_close(ctx.obj.close)


group.params[-1:-1] = output_options()
