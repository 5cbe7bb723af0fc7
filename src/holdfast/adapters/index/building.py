"""Opening the index that a configuration describes: its source, models, store and ledger."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from holdfast import durable
from holdfast.adapters.index.config import EMBEDDED, WORDS, IndexConfig, ModelConfig, read_index_config
from holdfast.errors import Refused, Unavailable
from holdfast.indexing import Channel, FlatStore, Folder, HashedWords, IndexRun, Pipeline, PlainChunker

_STORES = {
    "qdrant": ("holdfast.adapters.stores.qdrant", "QdrantStore"),
    "lancedb": ("holdfast.adapters.stores.lancedb", "LanceStore"),
    "sqlite-vec": ("holdfast.adapters.stores.sqlite_vec", "SQLiteVecStore"),
    "chroma": ("holdfast.adapters.stores.chroma", "ChromaStore"),
    "faiss": ("holdfast.adapters.stores.faiss", "FaissStore"),
}


@contextlib.contextmanager
def open_index(of: IndexConfig | str | os.PathLike[str], *, only_looks: bool = False) -> Iterator[IndexRun]:
    """Open the index of a configuration, or of the nearest folder that has one; to look only, no folder is made."""
    config = of if isinstance(of, IndexConfig) else read_index_config(of)
    _check_directory(config)
    if not only_looks:
        _make_directory(config)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_importing(config.folder))
        store = _store(config)
        if hasattr(store, "close"):
            stack.callback(store.close)
        pipeline = Pipeline(
            source=_source(config),
            chunk=PlainChunker(config.chunk_size, config.chunk_overlap),
            embed={name: _channel(each, config) for name, each in config.embed.items()},
            store=store,
        )
        families = [config.path(each) for each in config.families]
        yield stack.enter_context(IndexRun(ledger=_ledger(config), pipeline=pipeline, families=families))


def _source(config: IndexConfig) -> Folder:
    """The documents, and never what the index itself writes."""
    place, own = config.path(config.source), config.path(config.directory)
    without = (own.relative_to(place).as_posix(),) if own.is_relative_to(place) else ()
    return Folder(place, include=config.include, exclude=config.exclude, max_bytes=config.max_bytes, without=without)


def _check_directory(config: IndexConfig) -> None:
    """Refuse a folder for ledger and store that has other things in it: git and checkpoints would leave them out."""
    place = config.path(config.directory)
    try:
        is_ours = _is_ours(place, config)
    except OSError as error:
        raise Unavailable(f"{place} cannot be used: {error.strerror}", hint="Name another directory.") from error
    if not is_ours:
        raise Refused(
            f"{config.file}: the directory {config.directory} has other things than the index in it",
            hint="Name a folder that is empty, or not there yet: git and checkpoints leave all of it out.",
        )


def _make_directory(config: IndexConfig) -> None:
    """The folder of the ledger and the store. git leaves it out, and so do checkpoints: no restore may take back the
    record of what was paid for."""
    place = config.path(config.directory)
    try:
        durable.make_folder(place)
        for name in (".gitignore", ".holdfastignore"):
            if not (place / name).exists():
                durable.write_atomically(place / name, b"*\n")
    except OSError as error:
        raise Unavailable(f"{place} cannot be made: {error.strerror}", hint="Name another directory.") from error


def _is_ours(place: Path, config: IndexConfig) -> bool:
    if any(config.path(each).is_relative_to(place) for each in (".", config.source)):
        return False
    try:
        names = set(os.listdir(place))
    except FileNotFoundError:
        return True
    return names <= {".gitignore"} or not names.isdisjoint({".holdfastignore", "ledger.db", "vectors.db", *_STORES})


def _ledger(config: IndexConfig) -> str | Path:
    if "://" in config.ledger:
        return config.ledger
    return config.path(config.ledger) if config.ledger else config.path(config.directory, "ledger.db")


def _store(config: IndexConfig) -> Any:
    if config.store == "flat":
        return FlatStore(config.path(config.directory, "vectors.db"))
    module, name = _STORES[config.store]
    return getattr(importlib.import_module(module), name)(config.path(config.directory, config.store))


@contextlib.contextmanager
def _importing(folder: Path) -> Iterator[None]:
    """Look into a project's folder first, for its model, and for what that imports when it is called."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # somebody else took it away
            sys.path.remove(str(folder))


def _channel(said: ModelConfig, config: IndexConfig) -> Channel:
    if said.call:
        return Channel(
            _function(said.call, config),
            model=said.model,
            embed_query=_function(said.query, config) if said.query else None,
            **said.options,
        )
    return _worded(said) if said.model == WORDS else _embedded(said, config)


def _function(name: str, config: IndexConfig) -> Callable[..., Any]:
    """A function of the project's own, or of a package."""
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported: a key that is not there
        reason = f"{type(error).__name__}: {error}"
        raise Refused(
            f"{config.file}: {name} cannot be loaded: {reason}", hint="See that it can be imported."
        ) from error
    if not callable(found):
        raise Refused(f"{config.file}: {name} cannot be called", hint="It is a function of a list of texts.")
    return cast("Callable[..., Any]", found)


def _worded(said: ModelConfig) -> Channel:
    """A channel of our own sparse model."""
    model = HashedWords()
    told: dict[str, Any] = {"model": WORDS, "datatype": model.datatype, "usd_per_mtok": model.usd_per_mtok}
    return Channel(model, embed_query=model.embed_query, **(told | said.options))


def _embedded(said: ModelConfig, config: IndexConfig) -> Channel:
    """A channel of the model that comes in a package."""
    if said.model != EMBEDDED:
        raise Refused(
            f"{config.file}: there is no model {said.model!r} at hand",
            hint=f'Write model = "{EMBEDDED}" or "{WORDS}", or call = "module:function" for one of your own.',
        )
    from holdfast.adapters.models.wordllama import WordLlama  # an extra

    model = WordLlama()
    told: dict[str, Any] = {"model": model.model, "revision": model.revision, "usd_per_mtok": model.usd_per_mtok}
    return Channel(model, **(told | said.options))
