"""The `[index]` table of `holdfast.toml`, or `[tool.holdfast.index]` of a `pyproject.toml`."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.errors import NotFound, Refused, Unavailable
from holdfast.indexing.sources import TEXTS
from holdfast.indexing.words import HashedWords
from holdfast.workspace.tables import OWN, SHARED, Checks, checked, find_table, number, text, texts

STORES = ("flat", "qdrant", "lancedb", "sqlite-vec", "chroma", "faiss")
EMBEDDED = "wordllama"
"""The name of the model that comes with the extra `holdfast[index]`."""
WORDS = HashedWords.model
"""The name of our own sparse model."""

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


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A model, and how its vectors are stored."""

    model: str = ""
    call: str = ""
    """`module:name` of a function of a list of texts, seen from the project's folder."""
    query: str = ""
    """The same for queries, where they have a function of their own."""
    options: dict[str, Any] = field(default_factory=dict)
    """What else a `Channel` is told."""


@dataclass(frozen=True, slots=True)
class IndexConfig:
    """What a project says of its index."""

    folder: Path
    """Of the project: relative paths start here."""
    file: str
    source: str = "."
    include: tuple[str, ...] = TEXTS
    exclude: tuple[str, ...] = ()
    max_bytes: int = 64 << 20
    chunk_size: int = 1000
    chunk_overlap: int = 0
    store: str = "flat"
    directory: str = ".holdfast-index"
    ledger: str = ""
    """`postgresql://…`, where it is not a file in the directory."""
    families: tuple[str, ...] = ()
    embed: dict[str, ModelConfig] = field(default_factory=lambda: {"dense": ModelConfig(EMBEDDED)})

    def path(self, *parts: str) -> Path:
        """A path as the project means it."""
        return Path(os.path.abspath(self.folder.joinpath(*parts)))


def read_index_config(folder: str | os.PathLike[str]) -> IndexConfig:
    """What the nearest folder with a configuration says, from `folder` upward. NotFound if none has an index."""
    start = Path(os.path.abspath(folder))
    for place in (start, *start.parents):
        found = find_table(place)
        if found is not None and "index" in found[0]:
            return _config(place, found[0]["index"], found[1])
    raise NotFound(f"{start} has no index", hint="Describe one in holdfast.toml: holdfast index init")


def write_example(folder: str | os.PathLike[str]) -> Path:
    """Put the example into the configuration of a folder, after what is there. Refused if it has an index already."""
    place = Path(os.path.abspath(folder))
    found = find_table(place)
    if found is not None and "index" in found[0]:
        raise Refused(f"{found[1]} describes an index already", hint="Edit it, or remove its [index] table.")
    path = place / (found[1] if found else OWN)
    example = EXAMPLE.replace("[index", "[tool.holdfast.index") if path.name == SHARED else EXAMPLE
    try:
        _append(path, example)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error.strerror}", hint="Write the table by hand.") from error
    return path


def _append(path: Path, text: str) -> None:
    """Write a text after what is there, in one step; links stay links, and who may read it may go on."""
    real = Path(os.path.realpath(path))
    before, mode = b"", 0o644
    if real.exists():
        before, mode = durable.read_file(real, max_bytes=1 << 20), stat.S_IMODE(real.stat().st_mode)
    if before:
        before = before.rstrip(b"\n") + b"\n\n"
    durable.write_atomically(real, before + text.encode(), mode=mode)


# checking


def _config(folder: Path, table: Any, file: str) -> IndexConfig:
    if not isinstance(table, dict):
        raise Refused(f"{file}: index is {table!r}", hint="It is a table: [index].")
    values = checked(table, _KEYS, file, "index.")
    found = IndexConfig(folder, file, **values)
    if "://" in found.ledger and not found.ledger.startswith(("postgresql://", "postgres://")):
        kind = found.ledger.partition("://")[0]
        raise Refused(f"{file}: there is no ledger at {kind}://", hint="Name postgresql://…, or leave it out.")
    return found


def _paths(value: Any, what: str) -> tuple[str, ...]:
    return tuple(texts(value, what))


def _store(value: Any, what: str) -> str:
    if value not in STORES:
        raise Refused(f"{what} is {value!r}", hint=f"It is one of {', '.join(STORES)}.")
    return str(value)


def _models(value: Any, what: str) -> dict[str, ModelConfig]:
    if not isinstance(value, dict) or not value or not all(isinstance(each, dict) for each in value.values()):
        raise Refused(f"{what} is {value!r}", hint=f'It has a table for each model: [{what}.dense] with model = "…".')
    return {name: _model(table, f"{what}.{name}") for name, table in value.items()}


def _model(table: dict[str, Any], what: str) -> ModelConfig:
    for key in table:
        if key not in _OF_MODEL:
            raise Refused(f"there is no key {f'{what}.{key}'!r}", hint=f"The keys are {', '.join(_OF_MODEL)}.")
    values = {key: _OF_MODEL[key](value, f"{what}.{key}") for key, value in table.items()}
    model, call, query = (values.pop(key, "") for key in ("model", "call", "query"))
    if not model and not call:
        raise Refused(f"{what} names no model", hint=f'Write model = "{EMBEDDED}", or call = "module:function".')
    return ModelConfig(model, call, query, values)


def _call(value: Any, what: str) -> str:
    name = text(value, what)
    module, colon, function = name.partition(":")
    if not (colon and module and function):
        raise Refused(f"{what} is {value!r}", hint='Write "module:function".')
    return name


def _price(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise Refused(f"{what} is {value!r}", hint="Write dollars for a million tokens; 0 if it costs nothing.")
    return float(value)


def _prompt(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise Refused(f"{what} is {value!r}", hint="Write a text.")
    return value


_KEYS: Checks = {
    "source": text,
    "include": _paths,
    "exclude": _paths,
    "max_bytes": number,
    "chunk_size": number,
    "chunk_overlap": number,
    "store": _store,
    "directory": text,
    "ledger": text,
    "families": _paths,
    "embed": _models,
}
_OF_MODEL: Checks = {
    "model": text,
    "call": _call,
    "query": _call,
    "revision": text,
    "doc_prompt": _prompt,
    "query_prompt": _prompt,
    "query_model": text,
    "dimension": number,
    "datatype": text,
    "metric": text,
    "context_scope": text,
    "batch_size": number,
    "usd_per_mtok": _price,
}
