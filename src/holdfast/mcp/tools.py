"""The tools: what each takes, does and gives, of one workspace that was chosen before any of them is called."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from holdfast.errors import Conflict, HoldfastError, NotFound, Refused
from holdfast.harmless import unescape_path
from holdfast.mcp import answers, schemas
from holdfast.mcp.answers import Answer
from holdfast.mcp.schemas import Schema, flag, number, takes, text
from holdfast.workspace import Workspace

MATCHES_MAX = 1000
_WILDCARDS_MAX = 4  # each more multiplies the time that a glob may take by the length of a path
_ACTOR_MAX_CHARS = 200


class Tool(NamedTuple):
    """One tool, as a client is told of it."""

    name: str
    title: str
    says: str
    takes: Schema
    gives: Schema
    does: Callable[..., Answer]
    changes: bool = False
    """Whether it makes or changes anything, and so waits for others that do."""
    destroys: bool = False
    """Whether it changes files of the workspace (which are saved first)."""
    repeatable: bool = True
    """Whether doing it twice is the same as doing it once."""


class Tools:
    """The seven tools on one workspace. Errors are those of the library."""

    def __init__(self, workspace: Workspace, *, actor: str | None = None, session: str | None = None) -> None:
        self._workspace = workspace
        self._actor = actor
        self._session = session
        self._told: object = None
        self.all = {tool.name: tool for tool in (*self._changing(), *self._looking())}

    def call(self, tool: Tool, arguments: dict[str, Any], *, client: str) -> Answer:
        """Do what a tool does, and add what else there is to know (P4)."""
        actor = self._actor or client[:_ACTOR_MAX_CHARS] or None
        if tool.name == "checkpoint_save":
            arguments = arguments | {"actor": actor}
        answer = tool.does(**arguments)
        if tool.changes:  # the folder is now as a checkpoint has it, and what comes next is since then
            self._workspace.first_looks.note(actor)
        return answer | {"notes": [*answer.get("notes", ()), *self._recovered()]}

    def save(
        self, *, message: str = "", name: str | None = None, pinned: bool = False, actor: str | None = None
    ) -> Answer:
        """Keep the workspace as it is. What the first save finds was there before the client looked."""
        before = self._workspace.list(1, safety=True)
        whose, metadata = self._workspace.first_looks.attribute(actor)
        saved = self._workspace.save(
            message, name=name, pinned=pinned, actor=whose, session=self._session, metadata=metadata or None
        )
        is_new = not before or saved.sequence > before[0].sequence
        notes = (
            [f"What this first save found is not attributed to {answers.words(actor or '')}."]
            if is_new and whose != actor
            else []
        )
        if not saved.complete:
            notes.append("It is incomplete: some of `uncovered` should have been held.")
        return answers.saved(saved, is_new=is_new) | {"notes": notes}

    def list(
        self, *, limit: int = 20, before: str | None = None, session: str | None = None, safety: bool = False
    ) -> Answer:
        """Pages are counted from a checkpoint, so that one which is saved meanwhile moves none."""
        listed = self._workspace.list(limit + 1, session=session, safety=safety, before=before)
        there = listed[:limit]
        more = there[-1].id if len(listed) > limit else None
        return {"checkpoints": [answers.checkpoint(each) for each in there], "next_before": more}

    def diff(
        self,
        *,
        a: str = "latest",
        b: str | None = None,
        paths: Sequence[str] | None = None,
        offset: int = 0,
        limit: int = 100,
        text_offset: int = 0,
    ) -> Answer:
        """What differs."""
        found = self._workspace.diff(a, b, _paths(paths))
        return answers.diff(found, offset=offset, limit=limit, text_offset=text_offset)

    def preview(
        self,
        *,
        checkpoint: str,
        paths: Sequence[str] | None = None,
        keep_new: bool = False,
        offset: int = 0,
        limit: int = 100,
    ) -> Answer:
        """What a restore would do."""
        plan = self._workspace.preview(checkpoint, _paths(paths), keep_new=keep_new)
        return answers.plan(plan, offset=offset, limit=limit)

    def restore(
        self, *, checkpoint: str, digest: str, paths: Sequence[str] | None = None, keep_new: bool = False
    ) -> Answer:
        """Restore what was previewed, or nothing: the digest stands for the checkpoint, the wish and the folder."""
        chosen = _paths(paths)
        plan = self._workspace.preview(checkpoint, chosen, keep_new=keep_new)
        if plan.digest != digest:
            raise Conflict(
                "this is not what was previewed, or the folder has changed since",
                hint="Call checkpoint_preview with the same arguments, look at it, and give the digest that it has.",
            )
        return _told(answers.restored(self._workspace.restore(plan.checkpoint, chosen, plan, keep_new=keep_new)))

    def undo(self) -> Answer:
        """Take the last restore back."""
        return _told(answers.restored(self._workspace.undo()))

    def search(
        self,
        *,
        text: str,
        ignore_case: bool = False,
        paths: Sequence[str] | None = None,
        offset: int = 0,
        limit: int = 20,
    ) -> Answer:
        """Always all matches up to the limit of all, so that pages of one search belong together."""
        found = self._workspace.search(text, ignore_case=ignore_case, paths=_paths(paths), limit=MATCHES_MAX)
        there, where = answers.page([answers.match(each) for each in found], offset, limit)
        capped = [f"There may be more than {MATCHES_MAX:,} matches; name paths."] if len(found) >= MATCHES_MAX else []
        return {"matches": there, **where, "notes": capped}

    def _recovered(self) -> Sequence[str]:
        """How an interrupted restore was dealt with, once; why one could not be, each time."""
        recovered, error = self._workspace.recovered, self._workspace.recovery_error
        notes = []
        if recovered is not None and recovered is not self._told:
            self._told = recovered
            notes.append(answers.recovery(recovered))
        elif recovered is None and error is not None:
            notes.append(answers.words(f"An interrupted restore could not be dealt with: {error}"))
        return notes

    def _looking(self) -> Sequence[Tool]:
        """All that an agent is told of the tools that change nothing."""
        return (
            Tool(
                "checkpoint_list", "List checkpoints", "Checkpoints, newest first.",
                takes(limit=number("The most to answer with.", 20, least=1, most=answers.ENTRIES_MAX),
                      before=text("Only those older than this one: `next_before` of the answer before."),
                      session=text("Only those of this session."),
                      safety=flag("Also those that restores made of what they replaced.")),
                schemas.LISTED, self.list,
            ),
            Tool(
                "checkpoint_diff", "Compare checkpoints",
                "What differs between checkpoint a and checkpoint b, or the folder as it is now where b is left out.",
                takes(a=schemas.REF | {"default": "latest"}, b=schemas.REF, paths=schemas.PATHS, offset=schemas.OFFSET,
                      limit=schemas.LIMIT, text_offset=number("Where in the text to begin: `next_text_offset`.", 0)),
                schemas.DIFF, self.diff,
            ),
            Tool(
                "checkpoint_preview", "Preview a restore",
                "What checkpoint_restore would do, path by path, and the digest that it needs. Changes nothing.",
                takes("checkpoint", checkpoint=schemas.REF, paths=schemas.PATHS, keep_new=schemas.KEEP_NEW,
                      offset=schemas.OFFSET, limit=schemas.LIMIT),
                schemas.PLAN, self.preview,
            ),
            Tool(
                "checkpoint_search", "Search checkpoints",
                "Which files and saved states have a text, where it came and went, and who brought it.",
                takes("text", text=text("What to look for, as it stands.", 1000), ignore_case=flag("Or capital."),
                      paths=schemas.PATHS, offset=schemas.OFFSET,
                      limit=number("The most to answer with.", 20, least=1, most=answers.ENTRIES_MAX)),
                schemas.FOUND, self.search,
            ),
        )  # fmt: skip

    def _changing(self) -> Sequence[Tool]:
        """All that it is told of those that make or change something."""
        return (
            Tool(
                "checkpoint_save", "Save a checkpoint",
                "Keep the workspace as it is now. Costs little where little changed; changes no file.",
                takes(message=text("Why, in a line.", 2000), name=text("A name to find it by; unique."),
                      pinned=flag("Keep it when others are pruned.")),
                schemas.SAVED, self.save, changes=True, repeatable=False,
            ),
            Tool(
                "checkpoint_restore", "Restore a checkpoint",
                "Make the workspace, or some paths, exactly as a checkpoint holds them: files change, and those made "
                "since are removed. Call checkpoint_preview first, and give the same arguments and its digest. What is "
                "there now is saved first; checkpoint_undo brings it back.",
                takes("checkpoint", "digest", checkpoint=schemas.REF, digest=text("That of checkpoint_preview."),
                      paths=schemas.PATHS, keep_new=schemas.KEEP_NEW),
                schemas.RESTORED, self.restore, changes=True, destroys=True,
            ),
            Tool(
                "checkpoint_undo", "Undo the last restore",
                "Take back the last restore that was not taken back yet, whoever asked for it. What is there now is "
                "saved first.",
                takes(), schemas.RESTORED, self.undo, changes=True, destroys=True, repeatable=False,
            ),
        )  # fmt: skip


def problem(error: HoldfastError) -> Answer:
    """What a client is told of an error: its kind, what is so, what to do next."""
    kind = "not-found" if isinstance(error, NotFound) else type(error).__name__.lower()
    return {"error": {"kind": kind, "message": answers.words(error.message), "hint": answers.words(error.hint)}}


def _told(answer: Answer) -> Answer:
    """A restore that did not do everything says so in words, too."""
    failed = answer["counts"]["failed"]
    return answer if not failed else answer | {"notes": [f"{failed:,} paths could not be restored."]}


def _paths(given: Sequence[str] | None) -> Sequence[str] | None:
    """Paths as answers show them, as they are."""
    if given is None:
        return None
    for path in given:
        if len(re.findall(r"\*\*?", path)) > _WILDCARDS_MAX:
            raise Refused(f"{path} has more than {_WILDCARDS_MAX} wildcards", hint="Name a folder instead.")
    return [unescape_path(path) for path in given]
