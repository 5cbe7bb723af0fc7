"""Small trials of peers, for docs/compare.md: what each does in one situation, by its own documented calls.

    python benchmarks/trials.py [NAME]...     # without a name, all

A peer that is not installed is left out; TRIAL_OPENCODE, DBOS_PYTHON and INDEX_PYTHON name programs. Each trial prints
what it saw, with versions; none measures time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import operator
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, TypedDict

FLIPS = 12
STEPS = 100


def main(names: list[str]) -> None:
    trials = {
        "flip": flip,
        "graph": graph,
        "late": late,
        "dbos": dbos,
        "index": index,
        "backup": backup,
        "agents": agents,
    }
    for name in names or list(trials):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            print(f"== {name}: {(trials[name].__doc__ or '').splitlines()[0]}", flush=True)
            trials[name](Path(folder))


def of(package: str) -> str:
    return f"{package} {version(package)}"


def flip(folder: Path) -> None:
    """One bit of a saved training state is changed, at places spread over its largest file; then it is loaded."""
    import torch

    state = {"weights": torch.arange(1 << 18, dtype=torch.float32), "step": torch.tensor(7)}
    for name, save, load in _savers(folder):
        wrong = found = 0
        for number in range(FLIPS):
            place = folder / f"{name.split()[0]}-{number}"
            save(state, place)
            assert torch.equal(torch.as_tensor(load(place)["weights"]), state["weights"])  # sound as it is
            files = [each for each in (place.rglob("*") if place.is_dir() else [place]) if each.is_file()]
            largest = max(files, key=lambda each: each.stat().st_size)
            data = bytearray(largest.read_bytes())
            data[len(data) * (number + 1) // (FLIPS + 1)] ^= 4
            largest.write_bytes(data)
            try:
                loaded = load(place)
                wrong += not torch.equal(torch.as_tensor(loaded["weights"]), state["weights"])
            except Exception:
                found += 1
            shutil.rmtree(place) if place.is_dir() else place.unlink()
        print(f"{name}: of {FLIPS}, {wrong} loaded wrong without an error, {found} refused")


def _savers(folder: Path) -> Iterator[tuple[str, Callable[[Any, Path], object], Callable[[Path], Any]]]:
    import torch
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import load_file, save_file

    from holdfast.training import load_checkpoint, save_checkpoint

    def load_dcp(place: Path) -> Any:
        state = {"weights": torch.zeros(1 << 18), "step": torch.tensor(0)}
        dcp.load(state, checkpoint_id=place)
        return state

    yield (
        "holdfast",
        lambda state, place: save_checkpoint(place, 1, state),
        lambda place: load_checkpoint(place / "last"),
    )
    yield of("torch"), torch.save, torch.load
    yield of("safetensors"), save_file, load_file
    yield f"DCP of {of('torch')}", lambda state, place: dcp.save(state, checkpoint_id=place), load_dcp
    with contextlib.suppress(ImportError, PackageNotFoundError):
        import orbax.checkpoint as orbax

        plain = orbax.PyTreeCheckpointer()

        def save(state: Any, place: Path) -> None:
            plain.save(place, {name: value.numpy() for name, value in state.items()})

        yield of("orbax-checkpoint"), save, plain.restore
    with contextlib.suppress(ImportError, PackageNotFoundError):
        from torch_checkpointing import CheckpointManager
        from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig

        config = CheckpointManager.Config.with_sync_save()
        config.storage_config = LocalFileSystemStorageConfig(use_direct_io=False)
        manager = config.build()

        def load_into(place: Path) -> Any:
            into = {"weights": torch.zeros(1 << 18)}
            manager.load(str(place), into=into)
            return into

        yield of("torch_checkpointing"), lambda state, place: manager.save(str(place), state), load_into


def graph(folder: Path) -> None:
    """A graph adds a message of 1,000 characters in each step; bytes in the SQLite file afterwards."""
    from langgraph.checkpoint.sqlite import SqliteSaver

    from holdfast.adapters.langgraph import HoldfastSaver

    savers: dict[str, Callable[[str], Any]] = {
        of("langgraph-checkpoint-sqlite"): SqliteSaver.from_conn_string,
        "holdfast": lambda file: HoldfastSaver.from_url(f"sqlite:///{file}"),
    }
    for name, opened in savers.items():
        sizes = []
        for steps in (STEPS, 2 * STEPS):
            file = folder / f"{name.split()[0]}-{steps}.db"
            with opened(str(file)) as saver:
                _run(saver, steps, "thread")
            sizes.append(sum(each.stat().st_size for each in folder.glob(f"{file.name}*")))
        print(f"{name}: {sizes[0]:,} bytes for {STEPS} steps, {sizes[1]:,} for {2 * STEPS}")


def _run(saver: Any, steps: int, thread: str) -> None:
    from langgraph.graph import END, START, StateGraph

    class State(TypedDict):
        messages: Annotated[list[str], operator.add]

    def speak(state: State) -> State:
        return {"messages": [os.urandom(500).hex()]}

    builder = StateGraph(State).add_node("speak", speak).add_edge(START, "speak")
    builder.add_conditional_edges("speak", lambda state: END if len(state["messages"]) >= steps else "speak")
    config = {"configurable": {"thread_id": thread}, "recursion_limit": steps + 5}
    builder.compile(checkpointer=saver).invoke({"messages": []}, config, durability="sync")


def late(folder: Path) -> None:
    """A thread is deleted while a graph still runs in it."""
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import START, StateGraph

    from holdfast.adapters.langgraph import HoldfastSaver

    class State(TypedDict):
        seen: int

    savers = {
        of("langgraph-checkpoint-sqlite"): SqliteSaver.from_conn_string(":memory:"),
        "holdfast": HoldfastSaver.from_url("memory://"),
    }
    for name, opened in savers.items():
        with opened as saver:
            builder = StateGraph(State).add_node("one", lambda state: {"seen": 1})
            builder.add_node("two", lambda state, saver=saver: saver.delete_thread("t") or {"seen": 2})
            made = builder.add_edge(START, "one").add_edge("one", "two").compile(checkpointer=saver)
            config: Any = {"configurable": {"thread_id": "t"}}
            try:
                made.invoke({"seen": 0}, config, durability="sync")
                left = len(list(saver.list(config)))
                print(f"{name}: no error; {left} checkpoint of the deleted thread is there")
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {error}")


_WORKFLOW = """\
import os, signal, sys
from dbos import DBOS, DBOSConfig, SetWorkflowID

DBOS(config={"name": "trip", "system_database_url": "sqlite:///dbos.sqlite", "log_level": "ERROR"})

@DBOS.step()
def step(number):
    if number == 3 and "--crash" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    with open("steps.txt", "a") as file:
        print(number, file=file)
    return {number, "a set"}

@DBOS.workflow()
def trip():
    return [step(number) for number in (1, 2, 3)]

DBOS.launch()
with SetWorkflowID("trip-1"):
    handle = DBOS.start_workflow(trip) if "--crash" in sys.argv else DBOS.retrieve_workflow("trip-1")
    print(handle.get_result())
DBOS.destroy()
"""


def dbos(folder: Path) -> None:
    """A workflow of three steps is killed in the third, and started again."""
    if not os.environ.get("DBOS_PYTHON"):
        print("set DBOS_PYTHON to a Python that has dbos")
        return
    Path("trip.py").write_text(_WORKFLOW)
    python = os.environ["DBOS_PYTHON"]
    for words in (["--crash"], []):
        done = subprocess.run([python, "trip.py", *words], capture_output=True, text=True, timeout=120)
        print(words, done.returncode, done.stdout.strip()[-300:], done.stderr.strip()[-300:])
    print("steps that ran:", Path("steps.txt").read_text().split())
    query = (
        "import sqlite3; print(sqlite3.connect('dbos.sqlite').execute('select * from operation_outputs').fetchone())"
    )
    print(subprocess.run([python, "-c", query], capture_output=True, text=True).stdout[:400])


_INDEXERS = """\
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.vectorstores import InMemoryVectorStore

class Model(Embeddings):
    def __init__(self, sign): self.sign, self.texts = sign, 0
    def embed_documents(self, texts):
        self.texts += len(texts)
        return [[self.sign, 1.0] for _ in texts]
    def embed_query(self, text): return [self.sign, 1.0]

documents = [Document(f"text {n}", metadata={"source": str(n)}, id=str(n)) for n in range(20)]
records = InMemoryRecordManager("trial"); records.create_schema()
a, b = Model(1.0), Model(-1.0)
store = InMemoryVectorStore(a)
index(documents, records, store, cleanup="incremental", source_id_key="source", key_encoder="sha256")
index(documents, records, store, cleanup="incremental", source_id_key="source", key_encoder="sha256")
print("langchain: two runs, nothing changed:", a.texts, "texts sent")
store.embedding = b
documents[0] = Document("changed", metadata={"source": "0"}, id="0")
index(documents, records, store, cleanup="incremental", source_id_key="source", key_encoder="sha256")
signs = [each["vector"][0] for each in store.store.values()]
print("langchain: another model, one document changed:", b.texts, "text sent")
print("langchain: vectors of the old model:", signs.count(1.0), "of the new:", signs.count(-1.0))

from llama_index.core import Document as Text
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import SimpleVectorStore

texts = [Text(text=f"text {n}. " * 90, id_=str(n)) for n in range(20)]
docstore, vectors = SimpleDocumentStore(), SimpleVectorStore()
def run(size, model):
    splitter = SentenceSplitter(chunk_size=size, chunk_overlap=0, include_metadata=False)
    pipeline = IngestionPipeline(
        transformations=[splitter, model], docstore=docstore,
        docstore_strategy=DocstoreStrategy.UPSERTS, vector_store=vectors, disable_cache=True)
    return len(pipeline.run(documents=texts))
print("llama-index: nodes made by the first run:", run(100, MockEmbedding(embed_dim=2)))
print("llama-index: again:", run(100, MockEmbedding(embed_dim=2)))
print("llama-index: another chunk size:", run(60, MockEmbedding(embed_dim=2)))
print("llama-index: another model:", run(100, MockEmbedding(embed_dim=2, model_name="other")))
"""


def index(folder: Path) -> None:
    """An index is run again: unchanged, with another model, with another chunk size."""
    if not os.environ.get("INDEX_PYTHON"):
        print("set INDEX_PYTHON to a Python that has langchain-core and llama-index-core")
        return
    done = subprocess.run([os.environ["INDEX_PYTHON"], "-c", _INDEXERS], capture_output=True, text=True, timeout=300)
    print(done.stdout + done.stderr[-1500:])


def backup(folder: Path) -> None:
    """A folder is saved, damaged and restored with a backup tool, as its manual says."""
    for name in ("restic", "borg"):
        if not shutil.which(name) or subprocess.run([name, "--help"], capture_output=True).returncode:
            print(f"{name} is not installed")
            continue
        work, repository = folder / name / "work", folder / name / "repository"
        (work / "empty").mkdir(parents=True)
        (work / ".env").write_text("KEY=1\n")
        (work / "a.txt").write_text("one\n")
        (work / "secret").write_text("s")
        (work / "secret").chmod(0o600)
        _with(name, "save", repository, work)
        (work / ".env").unlink()
        (work / "empty").rmdir()
        (work / "a.txt").write_text("mine, not saved\n")
        (work / "new.txt").write_text("new\n")
        _with(name, "restore", repository, work)
        found = {
            "back": sorted(each.name for each in work.iterdir()),
            "mode": oct((work / "secret").stat().st_mode & 0o777),
            "edit since the save": (work / "a.txt").read_text().strip(),
        }
        said = subprocess.run([name, "--version" if name == "borg" else "version"], capture_output=True, text=True)
        print(said.stdout.strip(), found)


def _with(name: str, what: str, repository: Path, work: Path) -> None:
    environ = os.environ | {"RESTIC_PASSWORD": "x", "RESTIC_REPOSITORY": str(repository), "BORG_REPO": str(repository)}
    environ |= {"HOME": str(repository.parent), "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"}
    calls = {
        ("restic", "save"): [["restic", "init"], ["restic", "backup", "."]],
        ("restic", "restore"): [["restic", "restore", "latest", "--target", "."]],
        ("borg", "save"): [["borg", "init", "-e", "none"], ["borg", "create", "::a", "."]],
        ("borg", "restore"): [["borg", "extract", "::a"]],
    }
    for call in calls[name, what]:
        subprocess.run(call, cwd=work, env=environ, check=True, capture_output=True)


_DAMAGE = "rm .env; rmdir empty; chmod 644 secret; echo agent >> app.py; echo x > made.txt"


def agents(folder: Path) -> None:
    """An agent runs a shell command, you edit the same file, then its work is taken back: what is there afterwards."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit" / "adapters" / "agents"))
    import models  # stand-ins for the services of models

    models.COMMAND = _DAMAGE
    if program := os.environ.get("TRIAL_OPENCODE"):
        said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout.strip()
        for who in (f"opencode {said}, revert", "holdfast undo --agent, with its hooks in opencode"):
            place = _project(folder / who.split()[0])
            with models.served(models.ForOpencode) as address:
                _in_opencode(program, place, address, is_ours=who.startswith("holdfast"))
            _tell(who, place)
    with contextlib.suppress(ImportError):
        import claude_agent_sdk

        for who in (f"claude-code {_bundled(claude_agent_sdk)}, rewind", "ours, undo --agent, with its hooks there"):
            place = _project(folder / who.split()[0])
            with models.served(models.ForClaude) as address:
                asyncio.run(_in_claude(claude_agent_sdk, place, address, is_ours=who.startswith("ours")))
            _tell(who, place)


def _project(place: Path) -> Path:
    project = place / "project"
    (project / "empty").mkdir(parents=True)
    (place / "home").mkdir()
    (project / ".gitignore").write_text(".env\n")
    (project / ".env").write_text("KEY=1\n")
    (project / "app.py").write_text("one\ntwo\nthree\n")
    (project / "secret").write_text("s")
    (project / "secret").chmod(0o600)
    for words in ("init -q", "add -A", "-c user.name=a -c user.email=b@c commit -q -m one"):
        subprocess.run(["git", *words.split()], cwd=project, check=True)
    return project


def _edit(project: Path) -> None:
    """What a person does after the agent."""
    text = (project / "app.py").read_text()
    (project / "app.py").write_text(text.replace("one", "ONE, by you"))
    (project / "yours.txt").write_text("yours\n")


def _tell(who: str, project: Path) -> None:
    names = {each.name for each in project.iterdir()}
    lines = (project / "app.py").read_text().split("\n")
    found = {
        "the ignored .env is back": ".env" in names,
        "the empty folder is back": "empty" in names,
        "mode 0600 is back": (project / "secret").stat().st_mode & 0o777 == 0o600,
        "the agent's new file is gone": "made.txt" not in names,
        "the agent's line is gone": "agent" not in lines,
        "your line in the same file stays": "ONE, by you" in lines,
        "your new file stays": "yours.txt" in names,
    }
    print(who)
    for what, is_so in found.items():
        print(f"    {what}: {'yes' if is_so else 'no'}")


def _surroundings(project: Path, **more: str) -> dict[str, str]:
    dropped = ("XDG_", "GIT_", "CLAUDE", "HOLDFAST_", "OPENCODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {"HOME": str(project.parent / "home"), "PWD": str(project), "HOLDFAST_HELPER": "0"} | more


def _in_opencode(program: str, project: Path, address: str, *, is_ours: bool) -> None:
    environ = _surroundings(project, OPENCODE_DISABLE_MODELS_FETCH="1")
    options = {"baseURL": f"{address}/v1", "apiKey": "none"}
    model = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"m": {"name": "m", "tool_call": True}}}
    config = {"provider": {"stand-in": model}, "model": "stand-in/m", "permission": "allow", "autoupdate": False}
    settings = project.parent / "home" / ".config" / "opencode"
    settings.mkdir(parents=True)
    (settings / "opencode.json").write_text(json.dumps(config))
    ours = [sys.executable, "-m", "holdfast.cli"]
    if is_ours:
        subprocess.run([*ours, "install", "opencode"], cwd=project, env=environ, check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    call = [program, "serve", "--port", str(port)]
    server = subprocess.Popen(call, cwd=project, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        session = _ask(port, "POST", "/session", {})["id"]
        _ask(port, "POST", f"/session/{session}/message", {"parts": [{"type": "text", "text": "go"}]})
        _edit(project)
        said = _ask(port, "GET", f"/session/{session}/message")
        [prompt] = [each["info"]["id"] for each in said if each["info"]["role"] == "user"]
        if not is_ours:
            _ask(port, "POST", f"/session/{session}/revert", {"messageID": prompt})
    finally:
        server.terminate()
        server.wait(20)
    if is_ours:
        subprocess.run([*ours, "undo", "--agent"], cwd=project, env=environ, check=True, capture_output=True)


def _wait_for(port: int) -> None:
    """Wait until the server of opencode answers; it may forget what it is asked while it starts."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/session", timeout=5).close()
            return
        time.sleep(0.5)


def _ask(port: int, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    headers = {"content-type": "application/json"}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers, method=method)
    with urllib.request.urlopen(asked, timeout=120) as answer:
        return json.loads(answer.read() or b"null")


async def _in_claude(sdk: Any, project: Path, address: str, *, is_ours: bool) -> None:
    environ = _surroundings(
        project,
        ANTHROPIC_BASE_URL=address,
        ANTHROPIC_API_KEY="none",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING="1",
        IS_SANDBOX="1",
    )
    options = sdk.ClaudeAgentOptions(
        cwd=str(project), env=environ, enable_file_checkpointing=True, permission_mode="acceptEdits",
        allowed_tools=["Bash"], extra_args={"replay-user-messages": None}, setting_sources=["user"],
    )  # fmt: skip
    ours = [sys.executable, "-m", "holdfast.cli"]
    if is_ours:
        subprocess.run([*ours, "install", "claude-code"], cwd=project, env=environ, check=True, capture_output=True)
    async with sdk.ClaudeSDKClient(options) as client:
        await client.query("go")
        prompts = [each.uuid async for each in client.receive_response() if isinstance(each, sdk.UserMessage)]
        _edit(project)
        if not is_ours:
            await client.rewind_files(prompts[0])
    if is_ours:
        subprocess.run([*ours, "undo", "--agent"], cwd=project, env=environ, check=True, capture_output=True)


def _bundled(sdk: Any) -> str:
    program = Path(sdk.__file__).parent / "_bundled" / "claude"
    said = subprocess.run([program if program.exists() else "claude", "--version"], capture_output=True, text=True)
    return said.stdout.split()[0]


if __name__ == "__main__":
    main(sys.argv[1:])
