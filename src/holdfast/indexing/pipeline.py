"""A pipeline: plain callables from a source of documents to a store of vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.digest import digest, digest_bytes
from holdfast.errors import Refused, Unavailable
from holdfast.indexing.chunking import PlainChunker
from holdfast.indexing.families import METRICS, SCOPES
from holdfast.indexing.settings import semantic
from holdfast.indexing.sources import Source, as_source
from holdfast.indexing.stages import Stage, stage_of
from holdfast.indexing.store import VectorStore
from holdfast.indexing.vectors import DATATYPES

Embed = Callable[[Sequence[str]], Any]
"""Texts to vectors, one each, in this order. A sparse one is a mapping of places to numbers."""
_BYTES_PER_TOKEN = 4
_KEEPERS = "A FlatStore can, and a QdrantStore."


@dataclass(frozen=True)
class Channel:
    """A model, and how its vectors are stored."""

    embed: Embed
    model: str = ""
    """Its name, as a registry of families has it; the callable's own name if none is given."""
    revision: str = ""
    doc_prompt: str = ""
    """Goes before each chunk."""
    query_model: str = ""
    query_prompt: str = ""
    dimension: int | None = None
    """How many of the model's numbers are stored; all if not said. What the model returned is kept whole."""
    datatype: str = "float32"
    metric: str = "cosine"
    """What the model is made for. The stores that come with Holdfast compare by cosine; others find it in what
    `create` is told."""
    context_scope: str = "chunk"
    """What the vector of a chunk depends on. With `document`, each call of the model has all chunks of one document."""
    batch_size: int = 32
    usd_per_mtok: float | None = None
    count_tokens: Callable[[str], int] | None = None
    embed_query: Embed | None = None
    """For queries, where they are embedded in another way than documents."""

    def __post_init__(self) -> None:
        if not callable(self.embed):
            raise Refused(f"{self.embed!r} cannot be called", hint="A model is a function of a list of texts.")
        if self.datatype not in DATATYPES:
            raise Refused(f"the datatype is {self.datatype!r}", hint=f"It is one of {', '.join(DATATYPES)}.")
        if self.batch_size < 1 or (self.dimension is not None and self.dimension < 1):
            raise Refused("a batch and a dimension are 1 or more", hint="Leave them out for the usual.")
        if self.usd_per_mtok is not None and not 0 <= self.usd_per_mtok < math.inf:  # not a number is not, either
            raise Refused(f"the price is {self.usd_per_mtok}", hint="It is dollars for a million tokens.")
        if self.context_scope not in SCOPES:
            raise Refused(f"the scope is {self.context_scope!r}", hint=f"It is one of {', '.join(SCOPES)}.")
        if self.metric not in METRICS:
            raise Refused(f"the metric is {self.metric!r}", hint=f"It is one of {', '.join(METRICS)}.")
        if self.is_sparse and self.dimension is not None:
            raise Refused("a sparse vector has no dimension", hint="Leave it out.")
        if not self.model:
            object.__setattr__(self, "model", stage_of(self.embed).implementation)

    @property
    def label(self) -> str:
        """Names what makes a vector of a text: the model as it is called, and how it is asked."""
        stage = stage_of(self.embed)
        settings = {name: value for name, value in semantic(stage.settings).items() if name not in _OWN}
        kind = [each for each, is_so in (("sparse", self.is_sparse), ("document", self.sees_document)) if is_so]
        return digest("model", self.model, self.revision, self.doc_prompt, settings, *kind)

    @property
    def is_sparse(self) -> bool:
        """Whether the model returns numbers by their places."""
        return self.datatype.startswith("sparse")

    @property
    def sees_document(self) -> bool:
        """Whether a change of one chunk changes the vectors of all others."""
        return self.context_scope == "document"

    def tokens(self, text: str) -> int:
        """How many tokens a text is sent as: counted, or guessed from its bytes, which are more in scripts whose
        tokens are shorter."""
        sent = self.doc_prompt + text
        if self.count_tokens:
            return self.count_tokens(sent)
        return -(-len(sent.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)

    def ask(self, query: str) -> Any:
        """The vector of a query. Unavailable if the model does not give one."""
        if not query.strip():
            raise Refused("the query is empty", hint="Ask for something.")
        if not is_text(query):
            raise Refused("the query is not text", hint="Give it in UTF-8.")
        try:
            return next(iter((self.embed_query or self.embed)([self.query_prompt + query])))
        except Exception as error:  # a model is others' code, and may raise anything
            raise Unavailable(
                f"{self.model} does not work: {type(error).__name__}: {error}", hint="See that it can be called."
            ) from error

    def described(self) -> dict[str, Any]:
        """What of it decides, as a ledger holds it."""
        names = ("model", "revision", "doc_prompt", "query_model", "query_prompt", "dimension", "datatype", "metric")
        return {name: getattr(self, name) for name in names}


_WHOLE = Stage("holdfast.indexing.document", "1", {})
_OWN = {"model", "revision", "doc_prompt", "dimension", "datatype", "context_scope", "usd_per_mtok", "calls", "texts"}
"""Said by the channel, or counted by the model itself: no settings of the model."""


def is_text(text: str) -> bool:
    """Whether it can be written down: half a pair of surrogates cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def text_of(data: bytes) -> str:
    """The text of a document in UTF-8. Unavailable if it is something else."""
    if b"\0" in data:
        raise Unavailable("it is binary", hint="Leave it out, or give a parser for it.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unavailable(f"it is not UTF-8 at byte {error.start}", hint="Give a parser for it.") from None


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """What turns documents into points of a store. Every part may be a plain function."""

    source: Source | Any
    """A path, documents by name, or anything that gives `Document`s each time it is gone through."""
    embed: Mapping[str, Channel | Embed]
    store: VectorStore
    parse: Callable[[bytes], str] = text_of
    chunk: Callable[[str], Iterable[str]] = field(default_factory=PlainChunker)

    def __post_init__(self) -> None:
        if not isinstance(self.embed, Mapping) or not self.embed:
            raise Refused("the pipeline has no models by name", hint='Give embed={"dense": model}.')
        channels = {name: each if isinstance(each, Channel) else _channel(each) for name, each in self.embed.items()}
        thin = [name for name, each in channels.items() if each.is_sparse]
        if thin and not getattr(self.store, "keeps_sparse", False):
            raise Refused(f"the store cannot keep the sparse channel {thin[0]}", hint=_KEEPERS)
        object.__setattr__(self, "embed", channels)
        object.__setattr__(self, "source", as_source(self.source))

    @property
    def channels(self) -> Mapping[str, Channel]:
        """The models by the name of their vectors."""
        return self.embed  # type: ignore[return-value] # made so above

    def cutting(self) -> dict[str, Stage]:
        """The stages that decide what the chunks of a document are."""
        found = {"parse": stage_of(self.parse), "chunk": stage_of(self.chunk)}
        return found | {"context": _WHOLE} if self._sees_documents else found

    @property
    def _sees_documents(self) -> bool:
        return any(each.sees_document for each in self.channels.values())

    def pieces(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Name the chunks of a document by their very bytes; by those of all of it, if a model looks at all."""
        found = [digest_bytes(text.encode("utf-8", "surrogatepass")) for text in texts]
        if not self._sees_documents:
            return tuple(found)
        whole = digest("document", found)
        return tuple(digest_bytes(f"{whole} {place}".encode()) for place in range(len(found)))

    def cut(self, data: bytes) -> list[str]:
        """The chunks of a document."""
        chunks = list(self.chunk(self.parse(data)))
        for chunk in chunks:
            if not isinstance(chunk, str):
                raise Refused(f"the chunker gave {type(chunk).__name__}", hint="A chunk is a text.")
            if not is_text(chunk):
                raise Unavailable("a chunk has half a character in it", hint="See how the parser decodes.")
        return chunks


def _channel(model: Any) -> Channel:
    """A channel from a bare model, with what its attributes say of it."""
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
    said = {name: getattr(model, name) for name in known if getattr(model, name, None) is not None}
    return Channel(model, **said)
