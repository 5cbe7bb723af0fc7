"""Make a plan: read and chunk documents where needed, and compare them with the ledger. No model is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from holdfast.digest import RunningDigest, digest, digest_bytes
from holdfast.errors import HoldfastError, Refused
from holdfast.indexing import vectors
from holdfast.indexing.baseline import Baseline, read_baseline
from holdfast.indexing.channel_changes import Decision, decide
from holdfast.indexing.impact import ChangeImpact
from holdfast.indexing.ledger import DocRow, Failure, Generation, Ledger
from holdfast.indexing.model_families import Families
from holdfast.indexing.pipeline import Pipeline
from holdfast.indexing.plan import ChannelPlan, DocPlan, DocumentChange, IndexPlan, impact_of
from holdfast.indexing.settings import SettingChange, changes
from holdfast.indexing.sources import Document, DocumentSource, Portion, portions, read
from holdfast.indexing.spaces import CANARIES, Resolved
from holdfast.indexing.validation import is_text

_MEASURED = 1000
_AHEAD = 5_000
"""How many rows of the ledger are in memory."""
_AT_ONCE = 1_000
"""How many documents are compared in one loop."""


def corpus_digest(source: DocumentSource) -> str:
    """Return a digest that changes when a document of a source does, by its stamp or else its content."""
    running = RunningDigest()
    for some in portions(source):
        running.add(_marks(some))
    return running.value()


def _marks(some: Portion) -> str:
    marks = [""] * (2 * len(some.names))
    marks[::2] = some.names
    if None in some.stamps:
        marks[1::2] = [each.problem or each.stamp or _mark(each) for each in some.documents]
    else:
        marks[1::2] = some.stamps  # type: ignore[assignment] # None is in none of them
    return "\0".join(marks)


def _mark(document: Document) -> str:
    try:
        return digest_bytes(read(document))
    except HoldfastError:
        return "unreadable"


@dataclass
class _Tally:
    """The counts of one channel."""

    reused: int = 0
    to_embed: int = 0
    tokens: int = 0


class IndexPlanner:
    """Makes one plan."""

    def __init__(
        self,
        pipeline: Pipeline,
        ledger: Ledger,
        families: Families,
        *,
        retry_failed: bool = False,
        in_place: bool = False,
        beside: bool = False,
    ) -> None:
        self._pipeline = pipeline
        self._ledger = ledger
        self._families = families
        self._retry_failed = retry_failed
        self._in_place = in_place
        self._revision = ledger.revision()  # read first: later changes are noticed
        self._baseline = read_baseline(pipeline, ledger, families, beside=beside)
        self._may_recut = in_place or self._baseline.builds_beside
        self._recuts_live = False
        self._tallies = {name: _Tally() for name in pipeline.channels}
        self._wanted: set[str] = set()
        """Missing keys that are counted already: once, even if two channels share a model."""
        self._stages = pipeline.cutting()
        self._recipe = ledger.find_recipe(recipe_digest(pipeline))
        self._documents: list[DocPlan] = []
        self._failures: list[Failure] = []
        self._kept_folders: list[str] = []
        self._unchanged = 0
        self._base = PublishedRows(ledger, self._baseline.base)
        self._live = (
            PublishedRows(ledger, self._baseline.live) if self._baseline.live is not self._baseline.base else self._base
        )
        self._last = ""
        self._new_names: set[str] = set()
        self._met_intents: set[str] = set()

    def make(self) -> IndexPlan:
        """Go through the source once; once more if the live index was made with another chunker or parser.

        P3: then a complete new index is built, so that no search finds chunks of both kinds.
        """
        running = RunningDigest()
        for some in portions(self._pipeline.source):
            running.add(_marks(some))
            self._compare_all(some)
            if self._recuts_live:
                return self._beside().make()
        deleted = tuple(self._deleted())
        decisions = self._decisions()
        documents = tuple(self._documents)
        impact = impact_of(documents, bool(deleted), [one for each in decisions.values() for one in each])
        return IndexPlan(
            unchanged=self._unchanged,
            documents=documents,
            deleted=deleted,
            failures=tuple(self._failures),
            channels=tuple(self._channel(each, decisions[name]) for name, each in self._baseline.channels.items()),
            settings=tuple(self._settings()),
            findings=tuple(self._findings()),
            builds_beside=self._baseline.builds_beside,
            impact=max(impact, ChangeImpact.MIGRATABLE) if self._baseline.is_moved else impact,
            settings_digest=settings_digest(self._pipeline, self._baseline, in_place=self._in_place),
            corpus_digest=running.value(),
            revision=self._revision,
            retry_failed=self._retry_failed,
            in_place=self._in_place,
        )

    def _beside(self) -> IndexPlanner:
        """Return a planner for a new index that replaces the live one."""
        return IndexPlanner(self._pipeline, self._ledger, self._families, retry_failed=self._retry_failed, beside=True)

    # documents

    def _compare_all(self, some: Portion) -> None:
        """Skip documents whose row is the next one and has the same stamp: nearly all of a large corpus (P8)."""
        is_plain = self._live is self._base and not (self._retry_failed or self._baseline.intents)
        at, end = 0, len(some.names)
        while at < end:
            if is_plain and (passed := self._base.pass_unchanged(some, at, self._recipe)):
                self._unchanged += passed
                at += passed
                self._last = some.names[at - 1]
                continue
            self._compare(some.documents[at])
            at += 1
            if self._recuts_live:
                return

    def _compare(self, document: Document) -> None:
        name = document.name
        row = self._find(name)
        live = row if self._live is self._base else self._live.find(name)
        if name.endswith("/") and document.problem is not None:  # a folder; other names may end with / as well
            self._kept_folders.append(name.lstrip("/"))
            self._failures.append(Failure(name, document.problem))
        else:
            self._classify(document, row, live)

    def _find(self, name: str) -> DocRow | None:
        """Return the published row of a name. Refused if the name is invalid or a duplicate."""
        if not name or "\0" in name or not is_text(name):
            raise Refused(
                f"the source has a document with the name {name!r}", hint="A name is a text that is not empty."
            )
        row = self._base.find(name)
        if row is None:
            if name <= self._last and (name in self._new_names or self._base.has(name)):
                raise Refused(f"the source has two documents with the name {name}", hint="Names must be unique.")
            self._new_names.add(name)
        self._last = max(self._last, name)
        return row

    def _classify(self, document: Document, row: DocRow | None, live: DocRow | None) -> None:
        known = row or live
        data: bytes | None = None
        try:
            if known is not None and document.problem is None and known[1] and known[1] == document.stamp:
                content = known[2]
            else:
                data = read(document)
                content = digest_bytes(data)
            kind = self._kind(document.name, content, row, live)
            if kind is None:
                self._unchanged += 1
            else:
                self._documents.append(self._count(document, content, kind, data))
                self._recuts_live = not self._may_recut and row is not None and row[3] not in (0, self._recipe)
        except HoldfastError as error:
            self._failures.append(Failure(document.name, error.message, error.hint))
        except Exception as error:  # parser and chunker may raise anything
            self._failures.append(
                Failure(document.name, f"{type(error).__name__}: {error}", "Check the parser and the chunker.")
            )

    def _kind(self, name: str, content: str, row: DocRow | None, live: DocRow | None) -> DocumentChange | None:
        known = row or live
        if name in self._baseline.intents:
            self._met_intents.add(name)
            return DocumentChange.INTERRUPTED
        if known is None:
            return DocumentChange.NEW
        _, _, was, recipe = known
        if was != content:
            return DocumentChange.CHANGED
        if row is None:
            return DocumentChange.REWRITTEN if recipe == self._recipe else DocumentChange.RECHUNKED
        if recipe == 0:
            return DocumentChange.INTERRUPTED
        if recipe != self._recipe:
            return DocumentChange.RECHUNKED
        return DocumentChange.CHANGED if self._retry_failed and name in self._baseline.failing else None

    def _count(self, document: Document, content: str, kind: DocumentChange, data: bytes | None) -> DocPlan:
        pieces = self._ledger.pieces(content, self._recipe) if self._recipe is not None else None
        texts: list[str] | None = None
        if pieces is None or self._missing(pieces):
            texts = self._pipeline.cut(read(document) if data is None else data)
            pieces = self._pipeline.pieces(texts)
        missing = self._missing(pieces)
        to_embed = sum(self._tally(each, pieces, texts or [], missing) for each in self._baseline.channels.values())
        return DocPlan(document.name, kind, content, len(pieces), to_embed)

    def _missing(self, pieces: tuple[str, ...]) -> set[str]:
        keys = [each.key(piece) for each in self._baseline.channels.values() for piece in pieces]
        done = self._ledger.known(keys)
        if not self._retry_failed:
            done |= self._ledger.poisoned(keys)
        return set(keys) - done

    def _tally(self, channel: Resolved, pieces: tuple[str, ...], texts: list[str], missing: set[str]) -> int:
        tally = self._tallies[channel.name]
        before = tally.to_embed
        for place, piece in enumerate(pieces):
            key = channel.key(piece)
            if key not in missing or key in self._wanted:
                tally.reused += 1
                continue
            self._wanted.add(key)
            tally.to_embed += 1
            tally.tokens += channel.channel.tokens(texts[place])
        return tally.to_embed - before

    def _deleted(self) -> Iterator[str]:
        """Yield documents that are published, also by killed runs, and not in the source any more."""
        for name in (self._base if self._baseline.base else self._live).rest():
            if not any(name.startswith(folder) for folder in self._kept_folders):
                yield name
        failed = {failure.document for failure in self._failures}
        for name in sorted(self._baseline.intents.keys() - self._met_intents - failed):
            if not self._base.has(name):
                yield name

    # channels and settings

    def _decisions(self) -> dict[str, list[Decision]]:
        old = self._baseline.live.channels if self._baseline.live else {}
        found: dict[str, list[Decision]] = {}
        for name, each in self._baseline.channels.items():
            if not old:
                found[name] = []
                continue
            found[name] = decide(
                name, old.get(name), each.described(),
                families=self._families, relation=each.relation, native=each.native,
            )  # fmt: skip
        return found

    def _channel(self, each: Resolved, decisions: list[Decision]) -> ChannelPlan:
        tally = self._tallies[each.name]
        is_unknown = each.native is None or any(one.action == "probe" for one in decisions)
        probes = len(CANARIES) if tally.to_embed or is_unknown else 0
        tokens = tally.tokens + sum(each.channel.tokens(text) for text in CANARIES[:probes])
        rate = self._ledger.rate(each.space)
        size = None if each.dimension is None else each.dimension * vectors.FLOAT_BYTES
        return ChannelPlan(
            channel=each.name,
            decisions=tuple(decisions),
            reused=tally.reused,
            to_embed=tally.to_embed,
            probe_texts=probes,
            tokens=tokens,
            usd=each.usd(tokens, self._families),
            seconds=tally.to_embed / rate if rate else None,
            write_bytes=None if size is None else (tally.reused * each.shape.size_bytes + tally.to_embed * (size * 2)),
            overlap=self._overlap(each, decisions),
        )

    def _overlap(self, each: Resolved, decisions: list[Decision]) -> float | None:
        if not any(one.action in ("truncate", "quantise") for one in decisions):
            return None
        return vectors.overlap(self._ledger.sample(each.space, _MEASURED), each.shape)

    def _settings(self) -> list[SettingChange]:
        new = {name: stage.plain() for name, stage in self._stages.items()}
        before = self._baseline.live or self._baseline.base
        old = self._ledger.last_recipe(before.number) if before else None
        return changes(self._ledger.recipe_settings(old), new) if old and old != self._recipe else []

    def _findings(self) -> Iterator[str]:
        yield from self._baseline.findings
        gone = set(self._baseline.live.channels) - set(self._baseline.channels) if self._baseline.live else set()
        yield from (f"the channel {name} is dropped" for name in sorted(gone))
        yield from (text for each in self._baseline.channels.values() for text in each.contradictions(self._families))
        for name, stage in self._stages.items():
            for unseen in stage.unseen:
                yield f"a change of {unseen} of the stage {name} would not be noticed"


def recipe_digest(pipeline: Pipeline) -> str:
    """The same for pipelines that cut documents alike."""
    return digest("recipe", {name: stage.fingerprint for name, stage in pipeline.cutting().items()})


def settings_digest(pipeline: Pipeline, baseline: Baseline, *, in_place: bool) -> str:
    """The same as long as the settings are, and what is known of the models."""
    channels: Mapping[str, object] = {name: each.described() for name, each in baseline.channels.items()}
    return digest("settings", recipe_digest(pipeline), channels, baseline.shape, in_place)


class PublishedRows:
    """The published documents, read in step with the source: in order, only some rows are in memory.

    A row that was skipped is kept until its name comes, or to the end: then the source no longer has it.
    """

    def __init__(self, ledger: Ledger, generation: Generation | None) -> None:
        self._ledger = ledger
        self._generation = generation
        self._rows: Iterator[DocRow] = ledger.all_docs(generation.number) if generation else iter(())
        self._page: list[DocRow] = []
        """Rows that come next; those before `_at` are done with."""
        self._at = 0
        self._passed: dict[str, DocRow] = {}

    def pass_unchanged(self, some: Portion, at: int, recipe: int | None) -> int:
        """Go past the next rows, as long as they are those of the documents from `at` on; return how many they are."""
        count = 0
        while (ahead := self._ahead()) is not None and at < len(some.names):
            if ahead[0] != some.names[at]:  # before anything is copied: it may be so for each of very many
                break
            rows = self._page[self._at : self._at + _AT_ONCE]
            names, stamps = some.names[at : at + _AT_ONCE], some.stamps[at : at + _AT_ONCE]
            same = 0
            for (known, was, _, by), name, stamp in zip(rows, names, stamps, strict=False):
                if known != name or was != stamp or by != recipe or stamp is None:
                    break
                same += 1
            self._at += same
            at += same
            count += same
            if same < min(len(rows), len(names)):
                break
        return count

    def find(self, name: str) -> DocRow | None:
        """Return the row of a name, once."""
        while (ahead := self._ahead()) is not None and ahead[0] < name:
            self._passed[ahead[0]] = ahead
            self._at += 1
        if ahead is not None and ahead[0] == name:
            self._at += 1
            return ahead
        return self._passed.pop(name, None) if self._passed else None

    def _ahead(self) -> DocRow | None:
        """The next row; None at the end."""
        if self._at == len(self._page):
            self._page, self._at = list(islice(self._rows, _AHEAD)), 0
        return self._page[self._at] if self._page else None

    def has(self, name: str) -> bool:
        """Whether there is a row of a name, returned already or not."""
        return self._generation is not None and bool(self._ledger.docs(self._generation.number, [name]))

    def rest(self) -> Iterator[str]:
        """Yield the names whose rows were never returned."""
        yield from self._passed
        yield from (row[0] for row in self._page[self._at :])
        yield from (row[0] for row in self._rows)
