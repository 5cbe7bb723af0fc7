"""Making a plan: documents are read and cut where needed, and compared with the ledger. No model is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from holdfast.digest import RunningDigest, digest, digest_bytes
from holdfast.errors import HoldfastError, Refused
from holdfast.indexing import vectors
from holdfast.indexing.deciding import Decision, decide
from holdfast.indexing.families import Families
from holdfast.indexing.impact import ChangeImpact
from holdfast.indexing.ledger import DocRow, Failure, Ledger
from holdfast.indexing.pipeline import Pipeline, is_text
from holdfast.indexing.plan import ChannelPlan, DocPlan, IndexPlan, Kind, impact_of
from holdfast.indexing.rows import Rows
from holdfast.indexing.settings import SettingChange, changes
from holdfast.indexing.sources import Document, Source, portions, read
from holdfast.indexing.spaces import CANARIES, Resolved
from holdfast.indexing.standing import Ground, look

_MEASURED = 1000


def corpus_digest(source: Source) -> str:
    """The same as long as nothing in a source moved, as far as stamps tell, or else the contents."""
    running = RunningDigest()
    for some in portions(source):
        running.add(_marks(some))
    return running.value()


def _marks(documents: list[Document]) -> str:
    return "\0".join([text for each in documents for text in (each.name, each.problem or each.stamp or _mark(each))])


def _mark(document: Document) -> str:
    try:
        return digest_bytes(read(document))
    except HoldfastError:
        return "unreadable"


@dataclass
class _Tally:
    """What was counted for one channel."""

    reused: int = 0
    to_embed: int = 0
    tokens: int = 0


class Planner:
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
        self._revision = ledger.revision()  # before anything is looked at: what changes from here on is noticed
        self._ground = look(pipeline, ledger, families, beside=beside)
        self._may_recut = in_place or self._ground.builds_beside
        self._recuts_live = False
        self._tallies = {name: _Tally() for name in pipeline.channels}
        self._wanted: set[str] = set()
        """Keys that are missing, and counted: once, also if two channels are of one model."""
        self._stages = pipeline.cutting()
        self._recipe = ledger.find_recipe(recipe_digest(pipeline))
        self._documents: list[DocPlan] = []
        self._failures: list[Failure] = []
        self._kept_folders: list[str] = []
        self._unchanged = 0
        self._base = Rows(ledger, self._ground.base)
        self._live = Rows(ledger, self._ground.live) if self._ground.live is not self._ground.base else self._base
        self._last = ""
        self._new_names: set[str] = set()
        self._met_intents: set[str] = set()

    def make(self) -> IndexPlan:
        """Go through the source once; once more if the live index is of another chunker or parser.

        P3: then a whole index is made beside it, so that no search is answered from some of both.
        """
        running = RunningDigest()
        for some in portions(self._pipeline.source):
            running.add(_marks(some))
            self._take_all(some)
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
            channels=tuple(self._channel(each, decisions[name]) for name, each in self._ground.channels.items()),
            settings=tuple(self._settings()),
            findings=tuple(self._findings()),
            builds_beside=self._ground.builds_beside,
            impact=max(impact, ChangeImpact.MIGRATABLE) if self._ground.is_moved else impact,
            settings_digest=settings_digest(self._pipeline, self._ground, in_place=self._in_place),
            corpus_digest=running.value(),
            revision=self._revision,
            retry_failed=self._retry_failed,
            in_place=self._in_place,
        )

    def _beside(self) -> Planner:
        """The same, of an index that is made beside the live one."""
        return Planner(self._pipeline, self._ledger, self._families, retry_failed=self._retry_failed, beside=True)

    # documents

    def _take_all(self, some: list[Document]) -> None:
        """Pass by those whose row is the next one and says the same: of a million documents, nearly all."""
        is_plain = self._live is self._base and not (self._retry_failed or self._ground.intents)
        passes, recipe = self._base.passes, self._recipe
        for document in some:
            name, _, stamp, _, problem = document
            if is_plain and stamp and problem is None and passes(name, stamp, recipe):
                self._unchanged += 1
                self._last = name
            else:
                self._take(document)
            if self._recuts_live:
                return

    def _take(self, document: Document) -> None:
        name = document.name
        row = self._find(name)
        live = row if self._live is self._base else self._live.find(name)
        if name.endswith("/") and document.problem is not None:  # a folder; else it is an address like any
            self._kept_folders.append(name.lstrip("/"))
            self._failures.append(Failure(name, document.problem))
        else:
            self._judge(document, row, live)

    def _find(self, name: str) -> DocRow | None:
        """What is published under a name. Refused if it is no name, or was there before."""
        if not name or "\0" in name or not is_text(name):
            raise Refused(f"the source gave the name {name!r}", hint="A name is text, and not empty.")
        row = self._base.find(name)
        if row is None:
            if name <= self._last and (name in self._new_names or self._base.has(name)):
                raise Refused(f"the source gave {name} twice", hint="Give every document a name of its own.")
            self._new_names.add(name)
        self._last = max(self._last, name)
        return row

    def _judge(self, document: Document, row: DocRow | None, live: DocRow | None) -> None:
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
        except Exception as error:  # of a parser or a chunker, which are others' code
            self._failures.append(Failure(document.name, f"{type(error).__name__}: {error}", "See the parser."))

    def _kind(self, name: str, content: str, row: DocRow | None, live: DocRow | None) -> Kind | None:
        known = row or live
        if name in self._ground.intents:
            self._met_intents.add(name)
            return Kind.INTERRUPTED
        if known is None:
            return Kind.NEW
        _, _, was, recipe = known
        if was != content:
            return Kind.CHANGED
        if row is None:
            return Kind.REWRITTEN if recipe == self._recipe else Kind.RECHUNKED
        if recipe == 0:
            return Kind.INTERRUPTED
        if recipe != self._recipe:
            return Kind.RECHUNKED
        return Kind.CHANGED if self._retry_failed and name in self._ground.failing else None

    def _count(self, document: Document, content: str, kind: Kind, data: bytes | None) -> DocPlan:
        pieces = self._ledger.pieces(content, self._recipe) if self._recipe is not None else None
        texts: list[str] | None = None
        if pieces is None or self._missing(pieces):
            texts = self._pipeline.cut(read(document) if data is None else data)
            pieces = self._pipeline.pieces(texts)
        missing = self._missing(pieces)
        to_embed = sum(self._tally(each, pieces, texts or [], missing) for each in self._ground.channels.values())
        return DocPlan(document.name, kind, content, len(pieces), to_embed)

    def _missing(self, pieces: tuple[str, ...]) -> set[str]:
        keys = [each.key(piece) for each in self._ground.channels.values() for piece in pieces]
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
        """What is published, or may be from a run that was killed, and is not in the source any more."""
        for name in (self._base if self._ground.base else self._live).rest():
            if not any(name.startswith(folder) for folder in self._kept_folders):
                yield name
        failed = {failure.document for failure in self._failures}
        for name in sorted(self._ground.intents.keys() - self._met_intents - failed):
            if not self._base.has(name):
                yield name

    # channels and settings

    def _decisions(self) -> dict[str, list[Decision]]:
        old = self._ground.live.channels if self._ground.live else {}
        found: dict[str, list[Decision]] = {}
        for name, each in self._ground.channels.items():
            if not old:
                found[name] = []
                continue
            found[name] = decide(
                name, old.get(name), each.described(),
                families=self._families, standing=each.standing, native=each.native,
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
        before = self._ground.live or self._ground.base
        old = self._ledger.last_recipe(before.number) if before else None
        return changes(self._ledger.recipe_settings(old), new) if old and old != self._recipe else []

    def _findings(self) -> Iterator[str]:
        yield from self._ground.findings
        gone = set(self._ground.live.channels) - set(self._ground.channels) if self._ground.live else set()
        yield from (f"the channel {name} is dropped" for name in sorted(gone))
        yield from (said for each in self._ground.channels.values() for said in each.contradictions(self._families))
        for name, stage in self._stages.items():
            for unseen in stage.unseen:
                yield f"a change of {unseen} of the stage {name} would not be noticed"


def recipe_digest(pipeline: Pipeline) -> str:
    """The same for pipelines that cut documents alike."""
    return digest("recipe", {name: stage.fingerprint for name, stage in pipeline.cutting().items()})


def settings_digest(pipeline: Pipeline, ground: Ground, *, in_place: bool) -> str:
    """The same as long as the settings are, and what is known of the models."""
    channels: Mapping[str, object] = {name: each.described() for name, each in ground.channels.items()}
    return digest("settings", recipe_digest(pipeline), channels, ground.shape, in_place)
