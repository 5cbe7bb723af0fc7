"""A folder as a `Location`: the checkpoints of a workspace."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast import location
from holdfast.errors import NotFound, Refused, Remedy
from holdfast.location import Capability, Column, Item, Option, Page
from holdfast.model import documents
from holdfast.model.documents import short
from holdfast.workspace.stored.attribution import USER
from holdfast.workspace.workspace import Workspace

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.location import (
        Comparison,
        Description,
        Details,
        Field,
        PrunePlan,
        PruneResult,
        Table,
        UsageReport,
        Verification,
    )
    from holdfast.model import (
        Checkpoint,
        CheckpointDiff,
        CheckpointUsage,
        GitHead,
        LineCount,
        Operation,
        PathChange,
        Progress,
        Pruned,
        Uncovered,
        Usage,
    )
    from holdfast.retention import Policy
    from holdfast.workspace.stored.history import Turn

_LIST, _GET, _DIFF = (frozenset([each]) for each in (Capability.LIST, Capability.GET, Capability.DIFF))
_COLUMNS = (
    Column("id"),
    Column("when", "time"),
    Column("name", "marks"),
    Column("by", "marks"),
    Column("message", "line"),
)


YOU = "you"
"""What a person is called to a person."""
_FILTERS = ("session", "actor", "type", "since", "until", "grep", "after", "up_to")
_NAMED_MOST = 3  # paths that are not saved, for each reason
_List = list  # within the class, `list` is its method


class WorkspaceLocation:
    """The checkpoints of a folder."""

    capabilities = frozenset(Capability)
    options = (
        Option("all", "Also list the safety checkpoints, saved before each restore.", _LIST),
        Option("session", "Only checkpoints of this session.", _LIST, "ID"),
        Option("actor", "Only checkpoints of this agent and its sub-agents, or of the user.", _LIST, "ACTOR"),
        Option("type", "Only checkpoints of this type: automatic, manual, feature or session.", _LIST, "TYPE"),
        Option("since", "Only checkpoints since this time: 10m, 14:05, yesterday, 2026-11-01.", _LIST, "TIME"),
        Option("until", "Only checkpoints until this time.", _LIST, "TIME"),
        Option("grep", "Only checkpoints whose message or prompt matches a regular expression.", _LIST, "PATTERN"),
        Option("flat", "One line for each checkpoint, not grouped by turn.", _LIST),
        Option("stat", "Also list every changed file, with the lines added and removed.", _LIST),
        Option("state", "Print that state as JSON, and nothing else.", _GET, "NAME"),
        Option("uncovered", "List every path that it does not contain.", _GET),
        Option("stat", "Only count the lines added and removed in each file.", _DIFF),
        Option("name-only", "Only the paths.", _DIFF),
    )
    item_columns = _COLUMNS

    def __init__(self, address: str | Workspace, options: Mapping[str, Any] | None = None) -> None:
        if not isinstance(address, Workspace):
            address = Workspace(address, create=False, on_unknown="tagged")
        self.workspace: Workspace = address
        self._options = options or {}
        self.paths: Sequence[str] | None = self._options.get("paths")
        """The only paths that `list` and `diff` are about; None: all."""

    def describe(self) -> Description:
        return location.Description("workspace", "a folder", os.fspath(self.workspace.path), self.capabilities)

    def close(self) -> None:
        self.workspace.close()

    # looking

    def narrow(self, refs: Sequence[str], paths: Sequence[str] | None) -> None:
        """Have `list` return only checkpoints up to one reference, or after the first of two and up to the other; and
        only those that changed one of the paths."""
        if refs:
            self._options = {**self._options, "after": refs[0] if len(refs) > 1 else None, "up_to": refs[-1]}
        self.paths = paths

    def list(self, limit: int | None, before: str | None = None) -> Page:
        """A page of checkpoints; with the option `turns`, of turns, each of which is a group of them. With the option
        `grouped`, the document says which of the page belong to one turn."""
        filters: dict[str, Any] = {name: self._options.get(name) for name in _FILTERS}
        filters |= {"safety": bool(self._options.get("all")), "paths": self.paths}
        filters["actor"] = USER if filters["actor"] == YOU else filters["actor"]  # as the list shows it
        try:
            if self._options.get("turns"):
                return self._turns(limit, before, filters)
            found = self.workspace.list(None if limit is None else limit + 1, before=before, **filters)
        except NotFound:
            raise
        except Refused as error:  # a time or a pattern
            raise location.InvalidOption(error.message, hint=error.advice) from None
        shown = found[:limit]
        next_page = shown[-1].id if len(found) > len(shown) else None
        notes = [] if shown else [self._nothing(before, filters)]
        items = [_item(each) for each in shown]
        if self._options.get("stat"):
            items = [self._with_changes(each) for each in items]
        extra = {}
        if self._options.get("grouped"):
            from holdfast.workspace.stored.history import turn_document  # start-up cost: a flat list does without

            turns = self.workspace.group(shown, before=before, more=next_page is not None, **filters)
            extra = {"turns": [turn_document(each) for each in turns]}
        return Page(_COLUMNS, items, next_page, notes, extra)

    def _with_changes(self, item: Item) -> Item:
        changes = [documents.path_change(each) for each in self.workspace.changed_paths(item.id)]
        return item._replace(document=item.document | {"changes": changes})

    def _turns(self, limit: int | None, before: str | None, filters: Mapping[str, Any]) -> Page:
        found = self.workspace.turns(limit, before=before, **filters)
        groups = []
        for turn, summary in zip(found.turns, found.summaries, strict=True):
            is_cut = summary.files > len(summary.paths)
            wants_all = self._options.get("stat") or self.paths is not None
            changes = self._all_changes(turn) if is_cut and wants_all else summary.paths
            files, lines, changes = self._on_paths(summary.files, summary.lines, changes)
            groups.append(
                location.Group(
                    items=[_item(each) for each in turn.checkpoints],
                    title=turn.prompt or (message(turn.checkpoints[0]) if turn.checkpoints else ""),
                    by="" if turn.actor == USER else turn.actor,
                    when=turn.when,
                    number=turn.number,
                    marks=[mark for each in turn.checkpoints for mark in _marks(each) if mark],
                    files=files,
                    lines=lines,
                    changes=changes,
                )
            )
        items = [item for group in groups for item in group.items]
        notes = [] if groups else [self._nothing(before, filters)]
        return Page(_COLUMNS, items, found.next, notes, groups=groups)

    def _on_paths(
        self, files: int, lines: LineCount, changes: Sequence[PathChange]
    ) -> tuple[int, LineCount, Sequence[PathChange]]:
        """Of what changed, the part at the paths that were asked for, as git counts it."""
        if self.paths is None:
            return files, lines, changes
        from holdfast.workspace.pathspec import open_scope  # start-up cost, only with paths

        root = self.workspace.path
        scope = open_scope(self.paths, root, lambda path: os.path.lexists(root / path))
        named = [each for each in changes if each.path in scope or (each.old and each.old in scope)]
        if not named:  # a deleted file whose name reads as a pattern, or a folder
            return files, lines, changes
        counted = [each.lines for each in named]
        if any(each.added is None for each in counted):
            return len(named), lines._replace(added=None, removed=None), named
        added, removed = (sum(getattr(each, name) for each in counted) for name in lines._fields)
        return len(named), lines._replace(added=added, removed=removed), named

    def _all_changes(self, turn: Turn) -> Sequence[PathChange]:
        """Every changed file of a turn, as its newest checkpoint with it has it."""
        found: dict[str, PathChange] = {}
        for each in turn.checkpoints:
            for change in self.workspace.changed_paths(each.id):
                found.setdefault(change.path, change)
        return sorted(found.values(), key=lambda change: change.path)

    def _nothing(self, before: str | None, filters: Mapping[str, Any]) -> str:
        if before:
            return "There are no older ones."
        if self.paths is not None:
            return f"No checkpoint changed {', '.join(self.paths)}."
        asked = [name for name in _FILTERS if filters[name] is not None]
        if asked and set(asked) <= {"session", "actor", "type"}:
            return f"No checkpoints of this {' and '.join(asked)}."
        if asked:
            return "No checkpoint matches."
        if self.workspace.list(1, safety=True):
            return "No checkpoints but those made before restores."
        return "No checkpoints yet."

    def get(self, ref: str | None) -> Details:
        if (name := self._options.get("state")) is not None:
            return self._state("latest" if ref is None else ref, name)
        found = self.workspace.get("latest" if ref is None else ref)
        changes = self.workspace.changed_paths(found.id)
        document = documents.whole_checkpoint(found) | {"changes": [documents.path_change(each) for each in changes]}
        if self._options.get("uncovered"):
            reasons = documents.uncovered_reasons(found.uncovered)
            lines = [f"    {path or '.'}  ({why})" for path, why in reasons.items()]
            return location.Details(found.id, [], document, lines=lines or ["It contains everything."])
        missing = documents.uncovered_reasons(each for each in found.uncovered if each.reason.is_failure)
        parent = self.workspace.shown_parent(found)
        turn = self._turn(found) if found.actor is not None else None
        if turn is not None:
            from holdfast.workspace.stored.history import turn_document  # start-up cost: most are of a person

            document["turn"] = {name: value for name, value in turn_document(turn).items() if name != "checkpoints"}
        fields = _fields(found, parent.id if parent else found.parent, changes, turn)
        return location.Details(found.id, fields, document, missing=missing)

    def _turn(self, found: Checkpoint) -> Turn | None:
        """The turn of an agent that a checkpoint is of, with no other checkpoint of it."""
        return next((each for each in self.workspace.group([found], more=True) if each.checkpoints and each.key), None)

    def _state(self, ref: str, name: str) -> Details:
        """One state as it is stored. JSON may look like tags by itself, so that there are tags is a note."""
        from holdfast.workspace.stored.tagged_json import Tagged

        value = self.workspace.state(ref, name)
        if not isinstance(value, Tagged):
            return location.Details(ref, [], value, is_raw=True)
        note = f"State {name} has values that JSON lacks; each has a tag, such as $tuple."
        return location.Details(ref, [], value.form, notes=[note], is_raw=True)

    def find(self, ref: str) -> Item:
        return _item(self.workspace.get(ref))

    def diff(self, a: str | None, b: str | None) -> Comparison:
        """A against B, or against the folder as it is now."""
        words = [each for each in (a, b) if each]
        try:
            found = self.workspace.diff("latest" if a is None else a, b, self.paths)
        except NotFound as error:
            if any(os.path.lexists(word) for word in words):
                raise NotFound(error.message, remedy=Remedy("name_paths")) from None
            raise
        return self._comparison(found)

    def _comparison(self, found: CheckpointDiff) -> Comparison:
        same = "No differences." if not found.uncompared else "No differences in what both contain."
        touched = f"Only times or other metadata differ in {_count(len(found.touched_files), 'path')}"
        folders = f"{_count(len(found.changed_folders), 'folder')} added, removed or changed mode"
        notes: _List[tuple[str, Sequence[str] | Mapping[str, str]]] = [(same, ())] if not found else []
        notes += [
            (title, items)
            for title, items in (
                (touched, found.touched_files),
                (folders, found.changed_folders),
                (f"{_count(len(found.uncompared), 'path')} not compared", found.uncompared),
            )
            if items
        ]
        document = documents.diff(found)
        if self._options.get("name-only"):
            return location.Comparison(
                document, table=location.Table((Column("path"),), [(each,) for each in _paths(found)]), notes=notes
            )
        if self._options.get("stat"):
            total = (len(_paths(found)), "file", _total(found)) if found.line_counts else None
            return location.Comparison(document, table=_line_counts(found), notes=notes, summary=total)
        return location.Comparison(document, patch=found.diff_content, notes=notes)

    def verify(self, progress: Progress | None = None) -> Verification:
        report = self.workspace.verify(progress=progress)
        problems = [
            f"{each.what}: {each.detail}" + _touched([short(name) for name in each.checkpoints])
            for each in report.problems
        ]
        notes = [
            "Checkpoints that are not listed are intact. Saving again does not repair the damage.",
            "To get the rest back, restore the store, or its damaged files, from a backup.",
        ]
        read = [(report.checkpoints, "checkpoint"), (report.objects, "object")]
        document = documents.report(report)
        return location.Verification(report.ok, read, report.bytes_read, problems, document, [] if report.ok else notes)

    def usage(self, limit: int | None) -> UsageReport:
        """The largest checkpoints and paths first. Every folder of every checkpoint is read."""
        from holdfast.retention import told
        from holdfast.workspace.upkeep.type_policies import kind_of

        found = self.workspace.usage(paths=limit)
        by_size = sorted(found.checkpoints, key=lambda each: (-each.own_bytes, -each.checkpoint.sequence))
        largest = by_size[:limit]
        types = []
        for kind, rule in self.workspace.kind_rules().items():
            of_kind = [each for each in found.checkpoints if kind_of(each.checkpoint) == kind]
            own = sum(each.own_bytes for each in of_kind)
            types.append({"type": kind, "checkpoints": len(of_kind), "own_bytes": own, "kept": told(rule)})
        fields = [
            location.Field("store", found.total_bytes, "bytes"),
            location.Field("packs", found.packs_bytes, "bytes"),
            location.Field("catalog and scan cache", found.catalog_bytes, "bytes"),
            location.Field("other", found.other_bytes, "bytes"),
            location.Field("git", found.git_bytes or None, "bytes"),
            location.Field("unneeded", found.unneeded_bytes or None, "bytes"),
        ]
        notes = [f"There are {found.more_paths:,} more paths."] if found.more_paths else []
        if found.unneeded_bytes:
            notes.append("`compact` frees what is unneeded.")
        items = [
            {"id": each.checkpoint.id, "own_bytes": each.own_bytes, "shared_bytes": each.shared_bytes}
            for each in largest
        ]
        document = {
            **{field: getattr(found, field) for field in _USAGE},
            "paths": [documents.flat(each) for each in found.paths],
            "more_paths": found.more_paths,
            "types": types,
        }
        more = len(by_size) - len(items)
        tables = _usage_tables(found, largest, types)
        return location.UsageReport(items, more, fields, tables, document, notes, is_cut=bool(found.more_paths))

    # deleting and keeping

    def default_policy(self) -> Policy | None:
        from holdfast.retention import Policy
        from holdfast.workspace.config import read_settings

        configured = read_settings(self.workspace.path).retention
        if configured is None or (configured.keeps_all and not configured.by_kind and configured.max_bytes is None):
            return Policy() if self.workspace.kind_rules() else None  # the rules that the store has for its types
        return configured

    def plan_prune(self, policy: Policy, now: datetime) -> PrunePlan:
        del now  # the workspace has its own clock
        plan = self.workspace.prune(policy)
        removed = [_item(each) for each in plan.removed]
        return location.PrunePlan(
            removed, _COLUMNS, plan.kept, plan.bytes_freed, _pruned(plan), (policy, plan), notes=_above_size(plan)
        )

    def prune(self, plan: PrunePlan) -> PruneResult:
        policy, shown = plan.own
        done = self.workspace.prune(policy, dry_run=False, plan=shown)
        notes = _above_size(done)
        if done.unfreed_bytes:
            notes.append(
                f"{done.unfreed_bytes:,} more bytes could not be freed: not enough free space to copy the rest of a "
                "pack. Free some space, then run `compact`."
            )
        return location.PruneResult([_item(each) for each in done.removed], done.bytes_freed, _pruned(done), notes)

    def delete(self, ref: str) -> Item:
        return _item(self.workspace.delete(ref))

    def pin(self, ref: str, *, pinned: bool) -> tuple[Item, bool]:
        was = self.workspace.get(ref).pinned
        return _item(self.workspace.pin(ref, pinned=pinned)), was


def _usage_tables(found: Usage, largest: list[CheckpointUsage], types: list[dict[str, Any]]) -> list[Table]:
    sizes = location.Table(
        (
            Column("checkpoint"),
            Column("unique", "bytes"),
            Column("shared", "bytes"),
            Column("message", "line"),
        ),
        [(short(each.checkpoint.id), each.own_bytes, each.shared_bytes, message(each.checkpoint)) for each in largest],
    )
    kinds = location.Table(
        (Column("type"), Column("checkpoints", "count"), Column("unique", "bytes"), Column("kept")),
        [tuple(each.values()) for each in types],
    )
    paths = location.Table(
        (Column("path"), Column("size", "bytes"), Column("versions", "count")),
        [(each.path, each.bytes, each.contents) for each in found.paths],
    )
    return [sizes, kinds, paths]


_USAGE = ("total_bytes", "packs_bytes", "catalog_bytes", "other_bytes", "unneeded_bytes", "git_bytes")


def _item(checkpoint: Checkpoint) -> Item:
    marks = _marks(checkpoint)
    step = "" if checkpoint.step is None else f"#{checkpoint.step}"
    who = YOU if checkpoint.actor in (None, "", USER) else checkpoint.actor
    by = " ".join(filter(None, (who, checkpoint.session, step)))
    cells = (short(checkpoint.id), checkpoint.timestamp, marks, (by,), message(checkpoint))
    return Item(checkpoint.id, cells, documents.checkpoint(checkpoint))


def _marks(checkpoint: Checkpoint) -> tuple[str | None, ...]:
    pinned, incomplete = "pinned" if checkpoint.pinned else "", "" if checkpoint.complete else "incomplete"
    return checkpoint.name, pinned, documents.check_word(checkpoint), incomplete


def message(checkpoint: Checkpoint) -> str:
    """The message, or why the checkpoint was made."""
    if checkpoint.operation is not None and not checkpoint.message:
        return reason(checkpoint.operation)
    return checkpoint.message


def reason(operation: Operation) -> str:
    """Why a safety checkpoint was made."""
    target = short(operation.target)
    if operation.verb == "without":
        return f"made to undo an agent since {target}"
    if operation.verb == "revert":
        return f"made to take back changes since {target}"
    if operation.verb == "found":
        return f"found after an interrupted restore to {target}"
    return f"before {operation.verb} to {target}"


def _not_saved(uncovered: Sequence[Uncovered]) -> str:
    """A line for each reason, with the paths where these are few."""
    found: dict[str, list[str]] = {}
    for each in uncovered:
        found.setdefault(each.reason.value, []).append(each.path or ".")
    lines = []
    for why, paths in sorted(found.items(), key=lambda item: -len(item[1])):
        are_few = len(paths) <= _NAMED_MOST and not any("\n" in path for path in paths)
        lines.append(f"{', '.join(paths) if are_few else _count(len(paths), 'path')}: {why}")
    return "\n".join(lines)


def _fields(found: Checkpoint, parent: str | None, changes: Sequence[PathChange], turn: Turn | None) -> list[Field]:
    operation, git = found.operation, found.git
    return [
        location.Field("checkpoint", short(found.id)),
        location.Field("id", found.id),
        location.Field("name", found.name),
        location.Field("when", found.timestamp, "time"),
        location.Field("message", found.message, "block"),
        location.Field("session", found.session, "block"),
        location.Field("actor", found.actor, "block"),
        location.Field("the agent said", turn.closing if turn else "", "block"),
        location.Field("step", found.step),
        location.Field("metadata", dict(found.metadata) or None, "json"),
        location.Field("state", tuple(sorted(found.state)), "list"),
        location.Field("parent", short(parent) if parent else None),
        location.Field("pinned", "yes" if found.pinned else ""),
        location.Field("check", _check_words(found)),
        location.Field("safety", reason(operation) if operation else ""),
        location.Field("complete", "yes" if found.complete else "no"),
        location.Field("quiet", "" if found.quiet else "no: files changed while they were read"),
        location.Field("not saved", _not_saved(found.uncovered), "block"),
        location.Field("git", _git_words(git)),
        location.Field("stored as", f"commit {found.commit} in the store" if found.commit else ""),
        location.Field("changed", (_count(len(changes), "file"), [_change_line(each) for each in changes]), "listing"),
    ]


def _check_words(found: Checkpoint) -> str:
    """How its check ended, in words."""
    told = found.metadata.get("check")
    if found.is_green is None or not isinstance(told, dict):
        return ""
    why = f" ({told['reason']})" if told.get("reason") else ""
    return f"{documents.check_word(found)}{why}: {told.get('command', '')}"


def _git_words(git: GitHead | None) -> str:
    """Where the user's own git stood, in words."""
    if git is None:
        return ""
    at = f"commit {git.commit}" if git.commit else "no commit yet"
    return f"branch {git.branch}, {at}" if git.branch else f"detached HEAD, {at}"


def _change_line(change: PathChange) -> str:
    lines = change.lines
    counted = f"  +{lines.added:,} -{lines.removed:,}" if lines.added is not None and lines.removed is not None else ""
    return f"{change.letter or ' '} {f'{change.old} → ' if change.old else ''}{change.path}{counted}"


def _paths(found: CheckpointDiff) -> list[str]:
    renamed = [renamed.new for renamed in found.renamed_files]
    return sorted([*found.added_files, *found.modified_files, *found.deleted_files, *renamed])


def _line_counts(found: CheckpointDiff) -> Table:
    from holdfast.model import LineCount  # start-up cost: `log` does without

    old = {renamed.new: renamed.old for renamed in found.renamed_files}
    letters = dict.fromkeys(found.added_files, "A") | dict.fromkeys(found.deleted_files, "D")
    rows = []
    for path in _paths(found):
        lines = found.line_counts.get(path, LineCount(None, None))
        only_mode = path in found.modified_files and lines == (0, 0)
        shown = f"{old[path]} → {path}" if path in old else path
        rows.append((letters.get(path, "R" if path in old else "M"), "mode" if only_mode else lines, shown))
    return location.Table((Column("", "status"), Column("lines", "lines"), Column("path")), rows)


def _total(found: CheckpointDiff) -> LineCount:
    from holdfast.model import LineCount  # as above

    return LineCount(*(sum(each[at] or 0 for each in found.line_counts.values()) for at in (0, 1)))


def _touched(names: Sequence[str]) -> str:
    return f"  (affects {', '.join(names)})" if names else ""


def _above_size(plan: Pruned) -> list[str]:
    return [f"What must stay is {plan.over_bytes:,} bytes above the size asked for."] if plan.over_bytes else []


def _pruned(pruned: Pruned) -> dict[str, Any]:
    return {
        "kept": pruned.kept,
        "bytes_freed": pruned.bytes_freed,
        "over_bytes": pruned.over_bytes,
        "unfreed_bytes": pruned.unfreed_bytes,
        "is_done": pruned.is_done,
    }


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else noun + 's'}"
