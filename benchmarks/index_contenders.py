"""One run of one indexer over a folder, in a process of its own: `index_contenders.py WHO FOLDER [CHUNK_SIZE]`.

All of them use the same chunker, the same model and LanceDB. The model is a static table of words in numpy; every text
that it is sent is counted in a file, which outlives a kill, and with `KILL_AT` the process is killed when that many
were sent. What is not to be timed (imports, loading the model) is done before the clock starts; the time is printed.
"""

import asyncio
import hashlib
import os
import signal
import sys
import time
import uuid
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from holdfast.indexing import PlainChunker

DIMENSION, BATCH = 64, 32
# No `annotations` from the future here: CocoIndex reads the types of a row when it runs.
_TABLE = np.random.default_rng(5).standard_normal((4096, DIMENSION)).astype("f4")


class Model:
    """Counts what it is sent."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "sent.log"
        self._kill_at = int(os.environ.get("KILL_AT", "0"))

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        found = [self._vector(text) for text in texts]
        with open(self._log, "a") as log:
            log.write(f"{len(texts)}\n")
        if self._kill_at and sent(self._log.parent) >= self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    def _vector(self, text: str) -> list[float]:
        places = [zlib.crc32(word.encode()) % len(_TABLE) for word in text.split()] or [0]
        return [float(number) for number in _TABLE[places].mean(axis=0)]


def sent(folder: Path) -> int:
    """How many texts the model was sent, by all runs in a folder."""
    log = folder / "sent.log"
    return sum(map(int, log.read_text().split())) if log.exists() else 0


Work = Callable[[], None]


def holdfast(folder: Path, size: int) -> Work:
    from holdfast.adapters.stores.lancedb import LanceStore
    from holdfast.indexing import Channel, FolderSource, IndexRun, Pipeline

    def work() -> None:
        pipeline = Pipeline(
            source=FolderSource(folder / "docs"),
            chunk=PlainChunker(size),
            embed={"dense": Channel(Model(folder), model="words-1", batch_size=BATCH, **_wishes())},
            store=LanceStore(folder / "lance"),
        )
        with IndexRun(ledger=folder / "ledger.db", pipeline=pipeline) as run:
            plan = run.plan()
            before = sent(folder)
            done = run.apply(plan, accept_loss=True)
            predicted, actual = plan.texts, sent(folder) - before
            assert (predicted, done.ok) == (actual, True), (predicted, actual, done)

    return work


def _wishes() -> dict[str, Any]:
    """Other settings, for cases that only Holdfast has."""
    wishes: dict[str, Any] = {}
    if "DIMENSION" in os.environ:
        wishes["dimension"] = int(os.environ["DIMENSION"])
    if "DATATYPE" in os.environ:
        wishes["datatype"] = os.environ["DATATYPE"]
    return wishes


def langchain(folder: Path, size: int) -> Work:
    import lancedb
    import pyarrow as pa
    from langchain_classic.indexes import SQLRecordManager
    from langchain_core.documents import Document
    from langchain_core.indexing import index
    from langchain_core.vectorstores import VectorStore

    schema = pa.schema([("id", pa.string()), ("text", pa.string()), ("vector", pa.list_(pa.float32(), DIMENSION))])

    class Lance(VectorStore):
        """The least that `index` needs, over a LanceDB table."""

        def __init__(self, model: Model) -> None:
            self._model = model
            self._table = lancedb.connect(folder / "lance").create_table("chunks", schema=schema, exist_ok=True)

        def add_documents(self, documents: list[Document], **given: Any) -> list[str]:
            texts = [each.page_content for each in documents]
            found = [one for at in range(0, len(texts), BATCH) for one in self._model(texts[at : at + BATCH])]
            rows = [
                {"id": id_, "text": text, "vector": vector}
                for id_, text, vector in zip(given["ids"], texts, found, strict=True)
            ]
            self._table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)
            return list(given["ids"])

        def delete(self, ids: list[str] | None = None, **given: Any) -> bool:
            self._table.delete("id IN ({})".format(", ".join(f"'{each}'" for each in ids or ())))
            return True

        def similarity_search(self, query: str, k: int = 4, **given: Any) -> list[Document]:
            raise NotImplementedError

        @classmethod
        def from_texts(cls, *given: Any, **named: Any) -> Any:
            raise NotImplementedError

    def documents() -> Iterator[Document]:
        chunk = PlainChunker(size)
        for path in sorted((folder / "docs").rglob("*.md")):
            for text in chunk(path.read_text()):
                yield Document(page_content=text, metadata={"source": str(path)})

    def work() -> None:
        records = SQLRecordManager("bench", db_url=f"sqlite:///{folder / 'records.db'}")
        records.create_schema()
        index(documents(), records, Lance(Model(folder)), cleanup="full", batch_size=100, key_encoder=_key)

    def _key(document: Document) -> str:
        said = document.page_content + document.metadata["source"]
        return str(uuid.UUID(hashlib.sha256(said.encode()).hexdigest()[:32]))

    return work


def cocoindex(folder: Path, size: int) -> Work:
    os.environ["COCOINDEX_DISABLE_USAGE_TRACKING"] = "1"
    import cocoindex as coco
    from cocoindex.connectors import lancedb, localfs
    from cocoindex.resources.schema import VectorSchema

    store: coco.ContextKey[Any] = coco.ContextKey("store")
    model = Model(folder)
    space = VectorSchema(dtype=np.dtype(np.float32), size=DIMENSION)

    @dataclass
    class Row:
        id: str
        text: str
        vector: Annotated[NDArray[np.float32], space]

    @coco.lifespan
    async def around(builder: coco.EnvironmentBuilder) -> AsyncIterator[None]:
        builder.settings.db_path = folder / "coco.db"
        builder.provide(store, await lancedb.connect_async(str(folder / "lance")))
        yield

    @coco.fn.as_async(memo=True, batching=True, max_batch_size=BATCH)
    def embed(texts: list[str]) -> list[Any]:
        return [np.array(each, dtype=np.float32) for each in model(texts)]

    @coco.fn(memo=True)
    async def one(file: Any, table: Any, chunk_size: int) -> None:
        chunks = PlainChunker(chunk_size)(await file.read_text())
        vectors = await asyncio.gather(*(embed(text) for text in chunks))
        for number, (text, vector) in enumerate(zip(chunks, vectors, strict=True)):
            table.declare_row(row=Row(f"{file.file_path.path}#{number}", text, vector))

    @coco.fn
    async def everything() -> None:
        schema = await lancedb.TableSchema.from_class(Row, primary_key=["id"])
        table = await lancedb.mount_table_target(store, "chunks", schema)
        files = localfs.walk_dir(folder / "docs", recursive=True)
        await coco.mount_each(one, files.items(), table, size)

    app = coco.App("bench", everything)
    return lambda: app.update_blocking()


SYSTEMS = {"holdfast": holdfast, "langchain": langchain, "cocoindex": cocoindex}


def main() -> None:
    who, folder, size = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    work = SYSTEMS[who](folder, size)
    start = time.perf_counter()
    work()
    print(f"{time.perf_counter() - start:.4f}")


if __name__ == "__main__":
    main()
