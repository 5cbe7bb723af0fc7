"""An index as a project configures it: the `[index]` table of `holdfast.toml`, or `[tool.holdfast.index]`."""

from __future__ import annotations

import contextlib
import importlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

import msgspec

from holdfast import durable
from holdfast.configuration import OWN, SHARED, ByteSize, ConfigTable, find_configuration
from holdfast.durable.os_errors import os_errors
from holdfast.errors import NotFound, Refused, Remedy
from holdfast.indexing import Channel, FlatStore, FolderSource, HashedWords, IndexRun, Pipeline, PlainChunker
from holdfast.indexing.location import LEDGER
from holdfast.indexing.sources import TEXTS
from holdfast.indexing.vector_store import VectorStore

EXAMPLE = """\
[index]
source = "."                       # the folder with the documents
include = ["*.md", "*.py"]         # names, or paths below it; hidden files are left out
chunk_size = 1000                  # characters
store = "flat"                     # or qdrant, lancedb, sqlite-vec, chroma, faiss
directory = ".holdfast-index"      # of the ledger and the store

[index.embed.dense]
model = "wordllama"                # small, comes with holdfast[index]; or: call = "my_models:embed", of a list of texts
"""
_WORDLLAMA = "wordllama"  # comes with the extra `holdfast[index]`
_HASHED_WORDS = HashedWords.model
_MODELS = f'Write model = "{_WORDLLAMA}" or "{_HASHED_WORDS}", or call = "module:function" for one of your own.'
_STORES = {
    "qdrant": ("holdfast.adapters.stores.qdrant", "QdrantStore"),
    "lancedb": ("holdfast.adapters.stores.lancedb", "LanceStore"),
    "sqlite-vec": ("holdfast.adapters.stores.sqlite_vec", "SQLiteVecStore"),
    "chroma": ("holdfast.adapters.stores.chroma", "ChromaStore"),
    "faiss": ("holdfast.adapters.stores.faiss", "FaissStore"),
}


class FunctionName(str):
    """`module:name` of a function of a list of texts, as Python imports it from the project's folder."""

    @classmethod
    def decode(cls, value: object) -> FunctionName:
        """Check a value of a configuration."""
        module, _, function = value.partition(":") if isinstance(value, str) else ("", "", "")
        if not (module and function):
            raise Refused("it is not the name of a function", hint='Write "module:function".')
        return cls(value)


_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Positive = Annotated[int, msgspec.Meta(ge=1)]


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model, and how its vectors are stored: a table such as `[index.embed.dense]`."""

    model: _Text | None = None
    call: FunctionName | None = None
    query: FunctionName | None = None
    """For queries, if they have a function of their own."""
    revision: _Text | None = None
    doc_prompt: str | None = None
    query_prompt: str | None = None
    query_model: _Text | None = None
    dimension: _Positive | None = None
    datatype: _Text | None = None
    metric: _Text | None = None
    context_scope: _Text | None = None
    batch_size: _Positive | None = None
    usd_per_mtok: float | None = None

    def options(self) -> dict[str, Any]:
        """Return the arguments for a `Channel` that the table has, without the model."""
        names = (name for name in self.__struct_fields__ if name not in ("model", "call", "query"))
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class IndexConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[index]` table."""

    source: _Text = "."
    include: tuple[str, ...] = TEXTS
    exclude: tuple[str, ...] = ()
    max_bytes: ByteSize = ByteSize(64 << 20)
    chunk_size: _Positive = 1000
    chunk_overlap: Annotated[int, msgspec.Meta(ge=0)] = 0
    store: Literal["flat", "qdrant", "lancedb", "sqlite-vec", "chroma", "faiss"] = "flat"
    directory: _Text = ".holdfast-index"
    ledger: _Text | None = None
    """`postgresql://…`, or a file outside the directory."""
    families: tuple[str, ...] = ()
    embed: Annotated[dict[str, ModelConfig], msgspec.Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: {"dense": ModelConfig(model=_WORDLLAMA)}
    )


class _Described(NamedTuple):
    """The configuration of an index, and where it comes from."""

    folder: Path  # of the project: relative paths start here
    table: ConfigTable
    config: IndexConfig

    def path(self, *parts: str) -> Path:
        return Path(os.path.abspath(self.folder.joinpath(*map(os.path.expanduser, parts))))

    def error(self, key: str, message: str, hint: str) -> Refused:
        return self.table.error(("index", *key.split(".")), message, hint)


@contextlib.contextmanager
def open_index(folder: str | os.PathLike[str], *, create: bool = True) -> Iterator[IndexRun]:
    """Open the index that the nearest configuration describes, from `folder` upward.

    NotFound if none does. With `create=False` the folder of the ledger and the store is not created.
    """
    index = _read(Path(os.path.abspath(os.path.expanduser(folder))))
    _check_directory(index)
    if create:
        _make_directory(index)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_importing(index.folder))
        store = _store(index)
        if hasattr(store, "close"):
            stack.callback(store.close)
        pipeline = Pipeline(
            source=_source(index),
            chunk=_chunker(index),
            embed={name: _channel(index, name, model) for name, model in index.config.embed.items()},
            store=store,
        )
        families = [index.path(each) for each in index.config.families]
        yield stack.enter_context(IndexRun(ledger=_ledger(index), pipeline=pipeline, families=families))


def index_address(folder: str | os.PathLike[str]) -> str | None:
    """Return the address of the index that the configuration of a folder describes, as a location: the folder of its
    ledger, or `index+postgresql://…`; None if it describes none, or its ledger has another name."""
    place = Path(os.path.abspath(folder))
    table = find_configuration(place)
    if table is None or "index" not in table.values:
        return None
    ledger = _ledger(_read(place))
    if isinstance(ledger, str):
        return f"index+{ledger}"
    return os.fspath(ledger.parent) if ledger.name == LEDGER else None


class StoredIndex(NamedTuple):
    """The vector store of an index, and its ledger: a path or a URL."""

    store: VectorStore
    ledger: str


@contextlib.contextmanager
def open_stored_index(folder: str | os.PathLike[str]) -> Iterator[StoredIndex]:
    """Open the vector store that the nearest configuration names, from `folder` upward; no model is loaded.

    NotFound if none does, or if nothing was indexed yet.
    """
    index = _read(Path(os.path.abspath(os.path.expanduser(folder))))
    _check_directory(index)
    if not index.path(index.config.directory).is_dir():
        raise NotFound("nothing is indexed yet", hint="Apply a plan first.")
    store = _store(index)
    try:
        yield StoredIndex(store, os.fspath(_ledger(index)))
    finally:
        if hasattr(store, "close"):
            store.close()


def write_example(folder: str | os.PathLike[str]) -> Path:
    """Append the example to the configuration of a folder. Refused if that has an index already."""
    place = Path(os.path.abspath(os.path.expanduser(folder)))
    found = find_configuration(place)
    if found is not None and "index" in found.values:
        raise found.error(("index",), "an [index] table already exists", "Edit it, or remove it.")
    path = place / (found.file if found else OWN)
    example = EXAMPLE.replace("[index", "[tool.holdfast.index") if path.name == SHARED else EXAMPLE
    with os_errors(path, "writing to", outcome="Nothing was written."):
        _append(path, example)
    return path


def _append(path: Path, text: str) -> None:
    """Append to a file in one step; a link stays a link, and the mode of the file stays."""
    real = Path(os.path.realpath(path))
    before, mode = b"", 0o644
    if real.exists():
        before, mode = durable.read_file(real, max_bytes=1 << 20), stat.S_IMODE(real.stat().st_mode)
    if before:
        before = before.rstrip(b"\n") + b"\n\n"
    durable.write_atomically(real, before + text.encode(), mode=mode)


def _read(start: Path) -> _Described:
    for folder in (start, *start.parents):
        table = find_configuration(folder)
        if table is None or "index" not in table.values:
            continue
        index = _Described(folder, table, table.decode(IndexConfig, "index"))
        kind, scheme, _ = (index.config.ledger or "").partition("://")
        if scheme and kind not in ("postgresql", "postgres"):
            raise index.error("ledger", f"unknown kind of ledger: {kind}://", "Write postgresql://…, or leave it out.")
        for name, model in index.config.embed.items():
            if not (model.model or model.call):
                raise index.error(f"embed.{name}", f"index.embed.{name} names no model", _MODELS)
        return index
    raise NotFound(f"{start} has no index", remedy=Remedy("index_init"))


# the folder of the ledger and the store


def _check_directory(index: _Described) -> None:
    """Refuse a folder that contains other things: git and checkpoints would leave them out."""
    directory = index.path(index.config.directory)
    with os_errors(directory, "reading"):
        is_ours = _is_ours(directory, index)
    if not is_ours:
        raise index.error(
            "directory",
            f"the directory {index.config.directory} contains other files than the index",
            "Name a folder that is empty or does not exist: git and checkpoints leave all of it out.",
        )


def _is_ours(directory: Path, index: _Described) -> bool:
    if any(index.path(each).is_relative_to(directory) for each in (".", index.config.source)):
        return False
    try:
        names = set(os.listdir(directory))
    except FileNotFoundError:
        return True
    return names <= {".gitignore"} or not names.isdisjoint({".holdfastignore", "ledger.db", "vectors.db", *_STORES})


def _make_directory(index: _Described) -> None:
    """Create the folder. git and checkpoints leave it out: no restore may take back the record of what was paid for."""
    directory = index.path(index.config.directory)
    with os_errors(directory, "creating"):
        durable.make_folder(directory)
        for name in (".gitignore", ".holdfastignore"):
            if not (directory / name).exists():
                durable.write_atomically(directory / name, b"*\n")


def _ledger(index: _Described) -> str | Path:
    ledger = index.config.ledger
    if ledger is None:
        return index.path(index.config.directory, "ledger.db")
    return ledger if "://" in ledger else index.path(ledger)


def _store(index: _Described) -> Any:
    kind, directory = index.config.store, index.config.directory
    if kind == "flat":
        return FlatStore(index.path(directory, "vectors.db"))
    module, name = _STORES[kind]
    return getattr(importlib.import_module(module), name)(index.path(directory, kind))


# the pipeline


def _source(index: _Described) -> FolderSource:
    """Return the documents, without what the index itself writes."""
    config = index.config
    source, own = index.path(config.source), index.path(config.directory)
    without = (own.relative_to(source).as_posix(),) if own.is_relative_to(source) else ()
    return FolderSource(
        source, include=config.include, exclude=config.exclude, max_bytes=int(config.max_bytes), without=without
    )


def _chunker(index: _Described) -> PlainChunker:
    try:
        return PlainChunker(index.config.chunk_size, index.config.chunk_overlap)
    except Refused as error:
        raise index.error("chunk_overlap", error.message, error.hint) from None


def _channel(index: _Described, name: str, model: ModelConfig) -> Channel:
    key = f"embed.{name}"
    try:
        if model.call:
            query = _load_function(model.query) if model.query else None
            return Channel(_load_function(model.call), model=model.model or "", embed_query=query, **model.options())
        if model.model == _HASHED_WORDS:
            return _hashed_words(model)
        if model.model == _WORDLLAMA:
            return _wordllama(model)
    except Refused as error:  # values that only a channel can check
        raise index.error(key, f"index.{key}: {error.message}", error.hint) from error.__cause__
    raise index.error(f"{key}.model", f"model {model.model!r} does not exist", _MODELS)


def _hashed_words(config: ModelConfig) -> Channel:
    model = HashedWords()
    options: dict[str, Any] = {"model": model.model, "datatype": model.datatype, "usd_per_mtok": model.usd_per_mtok}
    return Channel(model, embed_query=model.embed_query, **(options | config.options()))


def _wordllama(config: ModelConfig) -> Channel:
    from holdfast.adapters.models.wordllama import WordLlama  # an extra

    model = WordLlama()
    options: dict[str, Any] = {"model": model.model, "revision": model.revision, "usd_per_mtok": model.usd_per_mtok}
    return Channel(model, **(options | config.options()))


def _load_function(name: str) -> Callable[..., Any]:
    """Import a function of the project, or of a package."""
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # a module may raise anything when it is imported
        raise Refused(
            f"cannot load {name}: {type(error).__name__}: {error}", hint="Check that Python can import it."
        ) from error
    if not callable(found):
        raise Refused(f"{name} is not callable", hint="Name a function that takes a list of texts.")
    return cast("Callable[..., Any]", found)


@contextlib.contextmanager
def _importing(folder: Path) -> Iterator[None]:
    """Import from a project's folder first: its model, and what that imports when it is called."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # removed by other code meanwhile
            sys.path.remove(str(folder))
