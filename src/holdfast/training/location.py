"""A training run as a `Location`: the checkpoints in a folder, or below the URL of an object store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.errors import NotFound, Refused
from holdfast.escaping import without_password
from holdfast.location import (
    Capability,
    Column,
    Comparison,
    Description,
    Details,
    Field,
    InvalidOption,
    Item,
    Option,
    Page,
    PrunePlan,
    PruneResult,
    Table,
    UsageReport,
    Verification,
)
from holdfast.model import documents

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.model import Progress
    from holdfast.retention import Policy
    from holdfast.training.retention import PrunedSteps
    from holdfast.training.run_store import RunStore, StoredCheckpoint

_DIGITS_MAX = 100  # no step has as many, and Python refuses to read numbers of thousands of digits
_COLUMNS = (
    Column("step"),
    Column("when", "time"),
    Column("", "marks"),
    Column("size", "bytes"),
    Column("metrics"),
)


_LISTED = (*_COLUMNS[:4], Column("new", "bytes"), Column("shared", "bytes"), *_COLUMNS[4:])

_List = list  # within the class, `list` is its method


class TrainingLocation:
    """The checkpoints of one run."""

    capabilities = frozenset(Capability)
    options: tuple[Option, ...] = ()
    item_columns = _COLUMNS

    def __init__(self, address: str, options: Mapping[str, Any] | None = None) -> None:
        del options
        from holdfast.training.checkpoints import open_run  # start-up cost: `options` is read without it

        self._address = address
        self._run: RunStore = open_run(address)

    def describe(self) -> Description:
        return Description("training", "a training run", without_password(self._address), self.capabilities)

    def close(self) -> None:
        """Nothing is open between two calls."""

    # looking

    def list(self, limit: int | None, before: str | None = None) -> Page:
        """The greatest step first. What cannot be read is in the notes, and in the JSON as `broken`."""
        if before is not None and not _is_number(before):
            raise InvalidOption(f"invalid cursor {before!r}: pass the number of a step")
        found, broken, following = self._run.page(limit, before=None if before is None else int(before))
        wrong = [{"path": str(each.path), "step": each.step, "error": each.error.message} for each in broken]
        notes = [f"broken: {each.error}" for each in broken]
        if not found and following is None:
            notes.insert(0, "There are no older ones." if before else "There are no checkpoints.")
        older = [] if following is None else self._run.page(1, before=following).found
        new = self._run.new_bytes(sorted([*found, *older], key=lambda each: each.manifest.sequence))
        items = [_with_new_bytes(item, new.get(item.document["step"])) for item in self._items(found)]
        return Page(_LISTED, items, None if following is None else str(following), notes, {"broken": wrong})

    def get(self, ref: str | None) -> Details:
        found = self._find("latest" if ref is None else ref)
        item = self._items([found])[0]
        manifest, environment = found.manifest, found.manifest.environment
        packages = environment.get("packages")
        versions = packages if isinstance(packages, dict) else {}
        fields = [
            Field("step", found.step),
            Field("path", str(found.path)),
            Field("when", manifest.timestamp, "time"),
            Field("metrics", item.cells[4]),
            Field("marks", item.cells[2], "list"),
            Field("tensors", manifest.n_tensors, "count"),
            Field("size", manifest.total_bytes, "bytes"),
            Field("files", manifest.n_files, "count"),
            Field("digest", manifest.digest_algorithm),
            Field("metadata", manifest.metadata or None, "json"),
            Field("git commit", environment.get("git_commit")),
            Field("configuration", manifest.config_hash),
            Field("python", environment.get("python")),
            Field("packages", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ]
        return Details(item.id, fields, item.document)

    def find(self, ref: str) -> Item:
        return self._items([self._find(ref)])[0]

    def diff(self, a: str | None, b: str | None) -> Comparison:
        """Without B, A and the newest; without both, the last two."""
        from holdfast.training.diff import compare

        if b is None:
            a, b = ("latest~1" if a in (None, "latest") else a), "latest"
        found = compare(self._find("latest~1" if a is None else a), self._find(b), self._run)
        changes = [{field: getattr(each, field) for field in each.__slots__} for each in found.changes]
        columns = (
            Column(""),
            Column("greatest change", "number"),
            Column("relative", "number"),
            Column("tensor"),
            Column("value"),
        )
        rows: _List[tuple[Any, ...]] = [
            (each.verb, each.max_change, each.relative_change, each.name, each.detail) for each in found.changes
        ]
        rows += [("changed", None, None, path, f"{old!r} → {new!r}") for path, (old, new) in found.values.items()]
        same = f"{found.same:,} {'tensor' if found.same == 1 else 'tensors'} the same"
        document = {"changes": changes, "same": found.same, "values": found.values}
        return Comparison(document, table=Table(columns, rows), notes=[(same, ())])

    def verify(self, progress: Progress | None = None) -> Verification:
        report = self._run.verify(progress)
        problems = [
            f"{each.what}: {each.detail}" + (f"  (affects {', '.join(each.checkpoints)})" if each.checkpoints else "")
            for each in report.problems
        ]
        read = [(report.checkpoints, "checkpoint"), (report.objects, "file")]
        return Verification(report.ok, read, report.bytes_read, problems, documents.report(report))

    def usage(self, limit: int | None) -> UsageReport:
        """What each checkpoint contains; files that several share count for each."""
        found, _ = self._run.scan()
        largest = sorted(found, key=lambda each: (-each.manifest.total_bytes, -each.manifest.sequence))
        shown = self._items(largest[:limit])
        total = sum(each.manifest.total_bytes for each in found)
        fields = [Field("checkpoints", len(found), "count"), Field("tensors in all", total, "bytes")]
        more = len(found) - len(shown)
        notes = [f"There are {more:,} more checkpoints."] if more else []
        tables = [Table(_COLUMNS, [each.cells for each in shown])]
        items = [each.document for each in shown]
        return UsageReport(items, more, fields, tables, {"total_bytes": total}, notes, is_cut=bool(more))

    # deleting and keeping

    def default_policy(self) -> Policy | None:
        return None

    def plan_prune(self, policy: Policy, now: datetime) -> PrunePlan:
        """The newest, the best and what is pinned always stay."""
        from holdfast.training import retention

        unknown = [
            name
            for name, value in (
                ("keep_for", policy.keep_for),
                ("keep_last_per_session", policy.keep_last_per_session),
                ("max_bytes", policy.max_bytes),
            )
            if value is not None
        ]
        if unknown:
            raise Refused(f"{unknown[0]} cannot be used with training runs", hint="Use keep_last or keep_every.")
        keep = retention.Keep(policy.keep_last, 1, policy.keep_every)
        options: dict[str, Any] = {"best_key": None, "mode": "min", "now": now}  # `best.json` says which
        found = self._run.scan()[0]
        plan = retention.plan(self._run, found, keep, **options)
        removed = self._items([each for each in found if each.step in plan.removed])
        kept = {str(step): why for step, why in plan.kept.items()}
        freed = sum(item.document["bytes"] for item in removed)
        return PrunePlan(removed, _COLUMNS, kept, freed or None, _pruned(plan), (keep, options, plan))

    def prune(self, plan: PrunePlan) -> PruneResult:
        from holdfast.training import retention

        keep, options, shown = plan.own
        with self._run.writing():
            done = retention.prune(self._run, self._run.scan()[0], keep, **options, shown=shown)
        removed = [each for each in plan.removed if each.document["step"] in done.removed]
        return PruneResult(removed, None, _pruned(done))

    def delete(self, ref: str) -> Item:
        """Delete a checkpoint. Refused if it contains files that Holdfast did not write (P1)."""
        with self._run.writing():
            found = self._find(ref)
            item = self._items([found])[0]
            if foreign := self._run.foreign_files(found):
                raise Refused(
                    f"{found.path} contains {foreign[0]}, which Holdfast did not write", hint="Move it away first."
                )
            self._run.repoint_markers([each for each in self._run.scan()[0] if each.step != found.step])
            self._run.remove(found)
            if found.step in (pinned := self._run.pinned()):
                self._run.pin(pinned - {found.step})  # else the next checkpoint of that step would be pinned
        return item

    def pin(self, ref: str, *, pinned: bool) -> tuple[Item, bool]:
        with self._run.writing():  # so that no prune comes between the look and the pin
            found = self._find(ref)
            steps = self._run.pinned()
            self._run.pin(steps | {found.step} if pinned else steps - {found.step})
        return self._items([found])[0], found.step in steps

    # items

    def _find(self, ref: str) -> StoredCheckpoint:
        """The checkpoint that a word means: latest, best, latest~2, or a step."""
        if ref in ("latest", "best"):
            return self._run.get(ref)
        found, _ = self._run.scan()
        back, step = ref.removeprefix("latest~"), ref.removeprefix("step-")
        if back != ref and _is_number(back) and int(back) < len(found):
            return self._run.full(found[-1 - int(back)])
        if not _is_number(step):
            raise NotFound(f"there is no checkpoint {ref}", hint="Use latest, best, or the number of a step.")
        return self._run.get(int(step))

    def _items(self, found: _List[StoredCheckpoint]) -> _List[Item]:
        if not found:
            return []
        pinned, best = self._run.pinned(), (self._run.best_marker() or {}).get("step")
        return [_item(each, is_pinned=each.step in pinned, is_best=each.step == best) for each in found]


def _item(found: StoredCheckpoint, *, is_pinned: bool, is_best: bool) -> Item:
    manifest = found.manifest
    values = {name: manifest.metric(name) for name in manifest.metrics}
    metrics = ", ".join(f"{name} {value:g}" for name, value in values.items() if value is not None)
    marks = tuple(word for word, is_so in (("best", is_best), ("pinned", is_pinned)) if is_so)
    document = {
        "step": found.step, "path": str(found.path), "sequence": manifest.sequence, "created_at": manifest.created_at,
        "metrics": manifest.metrics, "metadata": manifest.metadata, "environment": manifest.environment,
        "config_hash": manifest.config_hash, "bytes": manifest.total_bytes, "tensors": manifest.n_tensors,
        "files": manifest.n_files, "pinned": is_pinned, "best": is_best,
    }  # fmt: skip
    return Item(str(found.step), (found.step, manifest.timestamp, marks, manifest.total_bytes, metrics), document)


def _with_new_bytes(item: Item, size: int | None) -> Item:
    shared = None if size is None else max(item.document["bytes"] - size, 0)
    cells = (*item.cells[:4], size, shared, *item.cells[4:])
    return Item(item.id, cells, item.document | {"new_bytes": size, "shared_bytes": shared})


def _pruned(plan: PrunedSteps) -> dict[str, Any]:
    return {"kept": plan.kept, "is_done": plan.is_done}


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < _DIGITS_MAX
