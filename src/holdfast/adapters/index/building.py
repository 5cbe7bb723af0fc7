"""Opening the index that a configuration describes: its source, models, store and ledger."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.adapters.index.config import EMBEDDED, IndexConfig, ModelConfig, read_index_config
from holdfast.errors import Refused, Unavailable
from holdfast.indexing import Channel, FlatStore, Folder, IndexRun, Pipeline, PlainChunker

_STORES = {
    "qdrant": ("holdfast.adapters.stores.qdrant", "QdrantStore"),
    "lancedb": ("holdfast.adapters.stores.lancedb", "LanceStore"),
    "sqlite-vec": ("holdfast.adapters.stores.sqlite_vec", "SQLiteVecStore"),
    "chroma": ("holdfast.adapters.stores.chroma", "ChromaStore"),
    "faiss": ("holdfast.adapters.stores.faiss", "FaissStore"),
}


@contextlib.contextmanager
def open_index(of: IndexConfig | str | os.PathLike[str]) -> Iterator[IndexRun]:
    """Open the index of a configuration, or of the nearest folder that has one."""
    config = of if isinstance(of, IndexConfig) else read_index_config(of)
    _make_directory(config)
    with contextlib.ExitStack() as stack:
        store = _store(config)
        if hasattr(store, "close"):
            stack.callback(store.close)
        pipeline = Pipeline(
            source=Folder(
                config.path(config.source), include=config.include, exclude=config.exclude, max_bytes=config.max_bytes
            ),
            chunk=PlainChunker(config.chunk_size, config.chunk_overlap),
            embed={name: _channel(each, config) for name, each in config.embed.items()},
            store=store,
        )
        families = [config.path(each) for each in config.families]
        yield stack.enter_context(IndexRun(ledger=_ledger(config), pipeline=pipeline, families=families))


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


def _ledger(config: IndexConfig) -> str | Path:
    if "://" in config.ledger:
        return config.ledger
    return config.path(config.ledger) if config.ledger else config.path(config.directory, "ledger.db")


def _store(config: IndexConfig) -> Any:
    if config.store == "flat":
        return FlatStore(config.path(config.directory, "vectors.db"))
    module, name = _STORES[config.store]
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise Unavailable(
            f"the store {config.store} needs the package {error.name}",
            hint=f"Install it with: pip install 'holdfast[{config.store}]'",
        ) from error
    return found(config.path(config.directory, config.store))


def _channel(said: ModelConfig, config: IndexConfig) -> Channel:
    options = dict(said.options)
    if said.call:
        return Channel(
            _function(said.call, config),
            model=said.model,
            embed_query=_function(said.query, config) if said.query else None,
            **options,
        )
    return _embedded(said, config)


def _function(name: str, config: IndexConfig) -> Callable[..., Any]:
    """A function of the project's own: its folder is looked into first."""
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(config.folder))
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise Refused(f"{config.file}: {name} cannot be loaded: {error}", hint="See that it can be imported.") from None
    finally:
        sys.path.remove(str(config.folder))
    if not callable(found):
        raise Refused(f"{config.file}: {name} cannot be called", hint="It is a function of a list of texts.")
    return found  # type: ignore[no-any-return]


def _embedded(said: ModelConfig, config: IndexConfig) -> Channel:
    """A channel of the model that comes in a package."""
    if said.model != EMBEDDED:
        raise Refused(
            f"{config.file}: there is no model {said.model!r} at hand",
            hint=f'Write model = "{EMBEDDED}", or call = "module:function" for one of your own.',
        )
    try:
        from holdfast.adapters.models.wordllama import WordLlama  # an extra
    except ImportError as error:
        raise Unavailable(
            f"the model {EMBEDDED} needs the package {error.name}",
            hint="Install it with: pip install 'holdfast[index]'",
        ) from error
    model = WordLlama()
    told: dict[str, Any] = {"model": model.model, "revision": model.revision, "usd_per_mtok": model.usd_per_mtok}
    return Channel(model, **(told | said.options))
