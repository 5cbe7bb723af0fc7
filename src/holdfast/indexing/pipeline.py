"""A pipeline: plain callables from a source of documents to a store of vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.digest import digest, digest_bytes
from holdfast.errors import Refused, Unavailable
from holdfast.indexing.chunking import PlainChunker
from holdfast.indexing.model_families import METRICS, SCOPES
from holdfast.indexing.settings import semantic
from holdfast.indexing.sources import DocumentSource, as_source
from holdfast.indexing.stages import PipelineStage, stage_of
from holdfast.indexing.validation import is_text
from holdfast.indexing.vector_store import VectorStore
from holdfast.indexing.vectors import DATATYPES
from holdfast.validation import checked_options

Embed = Callable[[Sequence[str]], Any]
"""Texts to vectors, one each, in this order. A sparse vector is a mapping of positions to numbers."""
_BYTES_PER_TOKEN = 4
_SPARSE_STORES = "Use a FlatStore or a QdrantStore."


@checked_options
@dataclass(frozen=True)
class Channel:
    """A model, and how its vectors are stored."""

    embed: Embed
    model: str = ""
    """Its name in the families; by default the name of the callable."""
    revision: str = ""
    doc_prompt: str = ""
    """Prepended to each chunk."""
    query_model: str = ""
    query_prompt: str = ""
    dimension: int | None = None
    """How many of the model's numbers are stored; by default all. The ledger keeps the full vector."""
    datatype: str = "float32"
    metric: str = "cosine"
    """The metric of the model. The stores that come with Holdfast use cosine; others get it in the fingerprint of
    `create`."""
    context_scope: str = "chunk"
    """What the vector of a chunk depends on. With `document`, each call of the model gets a whole document."""
    batch_size: int = 32
    usd_per_mtok: float | None = None
    count_tokens: Callable[[str], int] | None = None
    embed_query: Embed | None = None
    """For queries, if they are embedded in another way than documents."""

    def __post_init__(self) -> None:
        if not callable(self.embed):
            raise Refused(f"{self.embed!r} is not callable", hint="Pass a function that takes a list of texts.")
        if self.datatype not in DATATYPES:
            raise Refused(f"unknown datatype {self.datatype!r}", hint=f"Use one of {', '.join(DATATYPES)}.")
        if self.batch_size < 1 or (self.dimension is not None and self.dimension < 1):
            raise Refused("batch_size or dimension is less than 1", hint="Leave them out for the default.")
        if self.usd_per_mtok is not None and not 0 <= self.usd_per_mtok < math.inf:  # NaN fails, too
            raise Refused(
                f"invalid usd_per_mtok {self.usd_per_mtok}", hint="Set dollars per million tokens; 0 if it is free."
            )
        if self.context_scope not in SCOPES:
            raise Refused(f"unknown context_scope {self.context_scope!r}", hint=f"Use one of {', '.join(SCOPES)}.")
        if self.metric not in METRICS:
            raise Refused(f"unknown metric {self.metric!r}", hint=f"Use one of {', '.join(METRICS)}.")
        if self.is_sparse and self.dimension is not None:
            raise Refused("a sparse vector has no dimension", hint="Leave it out.")
        if not self.model:
            object.__setattr__(self, "model", stage_of(self.embed).implementation)

    @property
    def label(self) -> str:
        """Identifies how a text becomes a vector: model, revision, prompt and settings."""
        stage = stage_of(self.embed)
        settings = {name: value for name, value in semantic(stage.settings).items() if name not in _OWN}
        kind = [each for each, is_so in (("sparse", self.is_sparse), ("document", self.sees_document)) if is_so]
        return digest("model", self.model, self.revision, self.doc_prompt, settings, *kind)

    @property
    def is_sparse(self) -> bool:
        """Whether the model returns sparse vectors."""
        return self.datatype.startswith("sparse")

    @property
    def sees_document(self) -> bool:
        """Whether a change of one chunk changes the vectors of all others."""
        return self.context_scope == "document"

    def tokens(self, text: str) -> int:
        """Count the tokens of a text with `count_tokens`, or estimate them from its bytes."""
        sent = self.doc_prompt + text
        if self.count_tokens:
            return self.count_tokens(sent)
        return -(-len(sent.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)

    def ask(self, query: str) -> Any:
        """Return the vector of a query. Unavailable if the model fails."""
        if not query.strip():
            raise Refused("the query is empty", hint="Pass a text.")
        if not is_text(query):
            raise Refused("the query is not text", hint="Pass valid Unicode.")
        try:
            return next(iter((self.embed_query or self.embed)([self.query_prompt + query])))
        except Exception as error:  # a model may raise anything
            raise Unavailable(
                f"the model {self.model} failed: {type(error).__name__}: {error}", hint="Check that it can be called."
            ) from error

    def described(self) -> dict[str, Any]:
        """Return its description as a ledger stores it."""
        names = ("model", "revision", "doc_prompt", "query_model", "query_prompt", "dimension", "datatype", "metric")
        return {name: getattr(self, name) for name in names}


_WHOLE = PipelineStage("holdfast.indexing.document", "1", {})
_OWN = {"model", "revision", "doc_prompt", "dimension", "datatype", "context_scope", "usd_per_mtok", "calls", "texts"}
"""Attributes of a channel, or counters of a model: not settings of the model."""


def text_of(data: bytes) -> str:
    """Decode a document as UTF-8. Unavailable if it is something else."""
    if b"\0" in data:
        raise Unavailable("it is binary", hint="Exclude it, or set a parser for it.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unavailable(f"it is not UTF-8 at byte {error.start}", hint="Set a parser for it.") from None


# Declared, so that an edit of its words makes no index stale: the digest that its source had in the first indexes
vars(text_of).update(
    stage_name="holdfast.indexing.pipeline.text_of",
    version="b3:4f8528011deab4264fed40cd03376b358498ed9efd3c39dfba4c11b1a4e0a0e3",
)


@checked_options
@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """What turns documents into points of a store. Every part may be a plain function."""

    source: DocumentSource | Any
    """A path, documents by name, or anything that gives `Document`s each time it is gone through."""
    embed: Mapping[str, Channel | Embed]
    store: VectorStore
    parse: Callable[[bytes], str] = text_of
    chunk: Callable[[str], Iterable[str]] = field(default_factory=PlainChunker)

    def __post_init__(self) -> None:
        if not isinstance(self.embed, Mapping) or not self.embed:
            raise Refused("the pipeline has no models", hint='Pass embed={"dense": model}.')
        channels = {name: each if isinstance(each, Channel) else _channel(each) for name, each in self.embed.items()}
        sparse = [name for name, each in channels.items() if each.is_sparse]
        if sparse and not getattr(self.store, "keeps_sparse", False):
            raise Refused(f"the store cannot store the sparse channel {sparse[0]}", hint=_SPARSE_STORES)
        object.__setattr__(self, "embed", channels)
        object.__setattr__(self, "source", as_source(self.source))

    @property
    def channels(self) -> Mapping[str, Channel]:
        """The channels by name."""
        return self.embed  # type: ignore[return-value] # set in __post_init__

    def cutting(self) -> dict[str, PipelineStage]:
        """Return the stages that determine the chunks of a document."""
        found = {"parse": stage_of(self.parse), "chunk": stage_of(self.chunk)}
        return found | {"context": _WHOLE} if self._sees_documents else found

    @property
    def _sees_documents(self) -> bool:
        return any(each.sees_document for each in self.channels.values())

    def pieces(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Return the digests of chunks; of the whole document if a model depends on all of it."""
        found = [digest_bytes(text.encode("utf-8", "surrogatepass")) for text in texts]
        if not self._sees_documents:
            return tuple(found)
        whole = digest("document", found)
        return tuple(digest_bytes(f"{whole} {place}".encode()) for place in range(len(found)))

    def cut(self, data: bytes) -> list[str]:
        """Return the chunks of a document."""
        chunks = list(self.chunk(self.parse(data)))
        for chunk in chunks:
            if not isinstance(chunk, str):
                raise Refused(f"the chunker returned {type(chunk).__name__}", hint="Return chunks of text.")
            if not is_text(chunk):
                raise Unavailable("a chunk contains a lone surrogate", hint="Check how the parser decodes.")
        return chunks


def _channel(model: Any) -> Channel:
    """Make a channel from a bare model and its attributes."""
    known = (
        "model",
        "revision",
        "doc_prompt",
        "datatype",
        "context_scope",
        "usd_per_mtok",
        "count_tokens",
        "embed_query",
    )
    options = {name: getattr(model, name) for name in known if getattr(model, name, None) is not None}
    return Channel(model, **options)
