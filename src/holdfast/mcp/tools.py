"""The tools: arguments, behaviour and result of each, on one workspace that is fixed at the start."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from holdfast.errors import Conflict, HoldfastError, NotFound, Refused
from holdfast.escaping import unescape_path
from holdfast.mcp import results, schemas
from holdfast.mcp.remedies import MCP
from holdfast.mcp.results import Answer
from holdfast.mcp.schemas import Schema, flag, number, takes, text
from holdfast.remedies import word_hint
from holdfast.workspace import Workspace

MATCHES_MAX = 1000
_WILDCARDS_MAX = 4  # each more multiplies the time that a glob may take by the length of a path
_ACTOR_MAX_CHARS = 200


class Tool(NamedTuple):
    """One tool, as it is described to a client."""

    name: str
    title: str
    says: str
    takes: Schema
    gives: Schema
    does: Callable[..., Answer]
    changes: bool = False
    """Whether it creates or changes anything, and so waits for others that do."""
    destroys: bool = False
    """Whether it changes files of the workspace (which are saved first)."""
    repeatable: bool = True
    """Whether doing it twice is the same as doing it once."""


class Tools:
    """The tools on one workspace. Errors are those of the library."""

    def __init__(self, workspace: Workspace, *, actor: str | None = None, session: str | None = None) -> None:
        self._workspace = workspace
        self._actor = actor
        self._session = session
        self._reported: object = None
        self.all = {tool.name: tool for tool in (*self._changing(), *self._reading())}

    def call(self, tool: Tool, arguments: dict[str, Any], *, client: str) -> Answer:
        """Call a tool, and add notes to its result (P4)."""
        actor = self._actor or client[:_ACTOR_MAX_CHARS] or None
        if tool.name == "checkpoint_save":
            arguments = arguments | {"actor": actor}
        answer = tool.does(**arguments)
        if tool.changes:  # the folder is now as in a checkpoint: later changes came after it
            self._workspace.first_saves.note(actor)
        return answer | {"notes": [*answer.get("notes", ()), *self._recovered()]}

    def save(
        self, *, message: str = "", name: str | None = None, pinned: bool = False, actor: str | None = None
    ) -> Answer:
        """Save the workspace. What the first save finds was there before the client started."""
        author, metadata = self._workspace.first_saves.attribute(actor)
        saved = self._workspace.save(
            message, name=name, pinned=pinned, actor=author, session=self._session, metadata=metadata or None
        )
        notes = (
            [f"What this first save found is not attributed to {results.words(actor or '')}."]
            if saved.is_new and author != actor
            else []
        )
        if not saved.complete:
            notes.append("It is incomplete: some of `uncovered` should have been saved.")
        return results.saved(saved, self._workspace.changed_count(saved)) | {"notes": notes}

    def list(
        self, *, limit: int = 20, before: str | None = None, session: str | None = None, safety: bool = False
    ) -> Answer:
        """List checkpoints. A page starts at a checkpoint, so that one saved meanwhile shifts nothing."""
        listed = self._workspace.list(limit + 1, session=session, safety=safety, before=before)
        there = listed[:limit]
        more = there[-1].id if len(listed) > limit else None
        turns = self._workspace.group(there, before=before, more=more is not None, session=session)
        return {
            "checkpoints": [results.checkpoint(each) for each in there],
            "turns": [results.turn(each) for each in turns if each.key is not None],
            "next_before": more,
        }

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
        return results.diff(found, offset=offset, limit=limit, text_offset=text_offset)

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
        return results.plan(plan, offset=offset, limit=limit)

    def restore(
        self, *, checkpoint: str, digest: str, paths: Sequence[str] | None = None, keep_new: bool = False
    ) -> Answer:
        """Restore what was previewed, or nothing: the digest covers the checkpoint, the options and the folder."""
        chosen = _paths(paths)
        plan = self._workspace.preview(checkpoint, chosen, keep_new=keep_new)
        if plan.digest != digest:
            raise Conflict(
                "this is not what was previewed, or the folder has changed since",
                hint="Call checkpoint_preview with the same arguments, check it, and pass its digest.",
            )
        return _with_failures(
            results.restored(self._workspace.restore(plan.checkpoint, chosen, plan, keep_new=keep_new))
        )

    def undo(self) -> Answer:
        """Undo the last restore. Refused if checkpoints were saved since: a preview shows what of them would go."""
        before = self._workspace.next_undo()
        if before and (later := self._workspace.saves_after(before)):
            raise Refused(
                f"the last restore was at {before.timestamp.isoformat(' ', 'seconds')}; saves since: {later}",
                hint=f"What was there before it is in {before.id}: pass that to checkpoint_preview, and restore it if"
                " that is meant. checkpoint_list shows newer checkpoints.",
            )
        return _with_failures(results.restored(self._workspace.undo()))

    def search(
        self,
        *,
        text: str,
        ignore_case: bool = False,
        paths: Sequence[str] | None = None,
        offset: int = 0,
        limit: int = 20,
    ) -> Answer:
        """Search for a text. Every page searches up to MATCHES_MAX, so that the pages of one search are consistent."""
        found = self._workspace.search(text, ignore_case=ignore_case, paths=_paths(paths), limit=MATCHES_MAX)
        there, where = results.page([results.match(each) for each in found], offset, limit)
        capped = [f"There may be more than {MATCHES_MAX:,} matches; name paths."] if len(found) >= MATCHES_MAX else []
        return {"matches": there, **where, "notes": capped}

    def secrets(self, *, offset: int = 0, limit: int = 100) -> Answer:
        """Keys and passwords in checkpoints, masked. Scans what is pending."""
        report = self._workspace.secrets()
        there, where = results.page([results.secret(each) for each in report.found], offset, limit)
        notes = ["The user removes one from the checkpoints with: holdfast purge --secret ID"] if report.found else []
        skipped = [results.words(each) for each in report.skipped]
        return {"secrets": there, "skipped": skipped, **where, "notes": notes}

    def _recovered(self) -> Sequence[str]:
        """How an interrupted restore was resolved, once; why one could not be, each time."""
        recovered, error = self._workspace.recovered, self._workspace.recovery_error
        notes = []
        if recovered is not None and recovered is not self._reported:
            self._reported = recovered
            notes.append(results.recovery(recovered))
        elif recovered is None and error is not None:
            notes.append(
                results.words(f"An interrupted restore could not be finished: {error.message}. {word_hint(error, MCP)}")
            )
        return notes

    def _reading(self) -> Sequence[Tool]:
        """The tools that change nothing."""
        return (
            Tool(
                "checkpoint_list", "List checkpoints", "Checkpoints, newest first.",
                takes(limit=number("Maximum number of results.", 20, least=1, most=results.ENTRIES_MAX),
                      before=text("Only checkpoints older than this one: `next_before` of the previous result."),
                      session=text("Only checkpoints of this session."),
                      safety=flag("Also the safety checkpoints that restores made before they changed files.")),
                schemas.LISTED, self.list,
            ),
            Tool(
                "checkpoint_diff", "Compare checkpoints",
                "What differs between checkpoint a and checkpoint b, or the current folder if b is omitted.",
                takes(a=schemas.REF | {"default": "latest"}, b=schemas.REF, paths=schemas.PATHS, offset=schemas.OFFSET,
                      limit=schemas.LIMIT, text_offset=number("Where in the text to start: `next_text_offset`.", 0)),
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
                "Which files and saved states contain a text, where it appeared and disappeared, and who added it.",
                takes("text", text=text("What to search for, literally.", 1000), ignore_case=flag("Ignore case."),
                      paths=schemas.PATHS, offset=schemas.OFFSET,
                      limit=number("Maximum number of results.", 20, least=1, most=results.ENTRIES_MAX)),
                schemas.FOUND, self.search,
            ),
            Tool(
                "checkpoint_secrets", "List secrets in checkpoints",
                "Which keys and passwords checkpoints contain: of which kind, where, since when. None is shown.",
                takes(offset=schemas.OFFSET, limit=schemas.LIMIT), schemas.SECRETS, self.secrets,
            ),
        )  # fmt: skip

    def _changing(self) -> Sequence[Tool]:
        """The tools that create or change something."""
        return (
            Tool(
                "checkpoint_save", "Save a checkpoint",
                "Save the workspace. Cheap if little changed; changes no file.",
                takes(message=text("Why, in one line.", 2000), name=text("A name to find it by; unique."),
                      pinned=flag("Pin it: prune never deletes it.")),
                schemas.SAVED, self.save, changes=True, repeatable=False,
            ),
            Tool(
                "checkpoint_restore", "Restore a checkpoint",
                "Restore the workspace, or some paths, exactly to a checkpoint: files change, and those created since "
                "are removed. Call checkpoint_preview first, and pass the same arguments and its digest. The current "
                "files are saved first; checkpoint_undo restores them.",
                takes("checkpoint", "digest", checkpoint=schemas.REF, digest=text("The digest of checkpoint_preview."),
                      paths=schemas.PATHS, keep_new=schemas.KEEP_NEW),
                schemas.RESTORED, self.restore, changes=True, destroys=True,
            ),
            Tool(
                "checkpoint_undo", "Undo the last restore",
                "Undo the last restore that was not undone yet, anyone's; refused if checkpoints were "
                "saved since. Saves the current files first.",
                takes(), schemas.RESTORED, self.undo, changes=True, destroys=True, repeatable=False,
            ),
        )  # fmt: skip


def problem(error: HoldfastError) -> Answer:
    """An error as a result: its kind, its message, and what to do next."""
    kind = "not-found" if isinstance(error, NotFound) else type(error).__name__.lower()
    return {
        "error": {"kind": kind, "message": results.words(error.message), "hint": results.words(word_hint(error, MCP))}
    }


def _with_failures(answer: Answer) -> Answer:
    """Add a note if a restore did not do everything."""
    failed = answer["counts"]["failed"]
    return answer if not failed else answer | {"notes": [f"{failed:,} paths could not be restored."]}


def _paths(given: Sequence[str] | None) -> Sequence[str] | None:
    """Decode paths that are written as results show them."""
    if given is None:
        return None
    for path in given:
        if len(re.findall(r"\*\*?", path)) > _WILDCARDS_MAX:
            raise Refused(f"{path} has more than {_WILDCARDS_MAX} wildcards", hint="Name a folder instead.")
    return [unescape_path(path) for path in given]
