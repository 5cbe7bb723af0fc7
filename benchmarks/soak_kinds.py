"""The processes of benchmarks/soak.py beside those that edit and save: agents, upkeep, states, training runs, indexes.

Each process logs what it is about to do and what is done, a line of JSON each. Its `compare` reads the logs at the end,
and knows from them what must exist.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import subprocess
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from holdfast import HoldfastError, NotFound, Workspace
from holdfast.retention import Policy

SESSIONS = 200
DOCUMENTS = 30
TEXT_BYTES = 12
JUMPS_S = (0, 0, 0, 3600, -3600, 86_400, -86_400, 2 * 86_400)

Said = Sequence[Mapping[str, Any]]


class Process:
    """One process: does random things from `operations` for ever, and logs them. A subclass has a method for each."""

    operations: ClassVar[Mapping[str, int]] = {}

    def __init__(self, area: Path, name: str, seed: int) -> None:
        self.area, self.chance = area, random.Random(seed)
        self.crew = name.partition("-")[0]
        """The name that all lives of this process have."""
        self._log = open(area / "logs" / f"{name}.jsonl", "a", buffering=1)  # noqa: SIM115 (open until the kill)
        self._offset = timedelta()

    def work(self) -> None:
        while True:
            if self.chance.random() < 0.02:  # somebody sets the clock
                self._offset = timedelta(seconds=self.chance.choice(JUMPS_S))
                self.say(jumped=self._offset.total_seconds())
            what = self.chance.choices(list(self.operations), weights=list(self.operations.values()))[0]
            try:
                getattr(self, what)()
            except HoldfastError as error:
                self.reopen()
                self.say(refused=type(error).__name__)
            except OSError as error:  # a full disk fails an editor, too; Holdfast words it itself
                if not what.startswith("edit"):
                    self.say(broken=f"{what}: {error}", trace=traceback.format_exc())
            except Exception as error:
                self.say(broken=f"{what}: {type(error).__name__}: {error}", trace=traceback.format_exc())
            else:
                self.say(did=what)

    def reopen(self) -> None:
        """Forget what is open: the store may not have been made yet, or be of an earlier moment."""

    def close(self) -> None:
        self.reopen()
        self._log.close()

    def now(self) -> datetime:
        """The time, as a clock has it that is set at random."""
        return datetime.now(UTC) + self._offset

    def say(self, **words: Any) -> None:
        self._log.write(json.dumps(words) + "\n")


def logs(area: Path, crew: str) -> list[dict[str, Any]]:
    """What all lives of a process said, in order; a kill may have cut the last line of each."""
    paths = sorted((area / "logs").glob(f"{crew}-*.jsonl"), key=lambda path: int(path.stem.rpartition("-")[2]))
    return [json.loads(line) for path in paths for line in path.read_text().rpartition("\n")[0].splitlines()]


def crews(area: Path, kind: str) -> list[str]:
    return sorted({path.stem.rpartition("-")[0] for path in (area / "logs").glob(f"{kind}[0-9]*-*.jsonl")})


# states in PostgreSQL


class States(Process):
    """Writes the sessions whose number fits its own, one after the other, as a graph does."""

    operations: ClassVar = {"step": 12, "look": 2, "prune": 1}

    def __init__(self, area: Path, name: str, seed: int) -> None:
        super().__init__(area, name, seed)
        self._states: Any = None
        self._least: dict[str, int] = {}

    @property
    def states(self) -> Any:
        if self._states is None:
            self._states = open_states_of(self.area)
        return self._states

    def reopen(self) -> None:
        if self._states is not None:
            with contextlib.suppress(HoldfastError):
                self._states.close()
        self._states = None

    def step(self) -> None:
        from holdfast.flow import Checkpoint, CheckpointMetadata

        session = self._session()
        found = self.states.load(session)
        number = found.state["step"] + 1 if found else 1
        if found and found.state != state_of(session, number - 1):
            self.say(broken=f"{session} has at step {number - 1} what was not saved: {str(found.state)[:200]}")
        if found and number < self._least.get(session, 0):
            self.say(broken=f"{session} is at step {number - 1}, after {self._least[session]} was saved")
        meta = CheckpointMetadata(f"c{number}-{self.chance.randrange(1 << 40)}", session, self.now(), "node", number)
        self.states.save(Checkpoint(meta, state_of(session, number)))
        self._least[session] = number
        self.say(stepped=session, to=number)

    def look(self) -> None:
        session = self._session()
        listed = [each.step for each in self.states.metadata(session)]
        if listed != sorted(listed, reverse=True):
            self.say(broken=f"{session} is not in order: {listed}")

    def prune(self) -> None:
        self.states.prune(Policy(keep_last_per_session=5))

    def _session(self) -> str:
        mine = int(self.crew.removeprefix("states"))
        numbers = [number for number in range(SESSIONS) if number % N_STATES == mine]
        return f"session{self.chance.choice(numbers)}"


N_STATES = 2


def open_states_of(area: Path) -> Any:
    from holdfast.flow import open_states

    return open_states((area / "postgres").read_text())


def state_of(session: str, number: int) -> dict[str, Any]:
    """The state of a session at a step: the same whoever makes it."""
    messages = [f"{session} said {each}: {_digest(session, each)}" for each in range(max(0, number - 20), number)]
    return {"step": number, "messages": messages, "seen": set(range(number % 7))}


def compare_states(area: Path, said: Said, report: Any) -> None:
    """Each session is at the last step whose save returned, or at the one that a kill interrupted."""
    least: dict[str, int] = {}
    for each in said:
        if "stepped" in each:
            least[each["stepped"]] = max(least.get(each["stepped"], 0), each["to"])
    with contextlib.closing(open_states_of(area)) as states:
        for session, number in least.items():
            found = states.load(session)
            report.counts["sessions compared"] += 1
            at = found.state["step"] if found else 0
            if not number <= at <= number + 2:  # the interrupted one, and one of the life before it
                report.losses.append(f"{session} is at step {at}, and {number} was saved")
            elif found.state != state_of(session, at):
                report.losses.append(f"{session} has at step {at} what was not saved")
        verified = states.verify()
        if not verified.ok:
            report.losses.append(f"states: verify: {verified}")


# a training run


class Training(Process):
    """Trains: loads the last checkpoint, and saves the next ones."""

    operations: ClassVar = {"train": 10, "resume": 2, "verify": 1}

    def __init__(self, area: Path, name: str, seed: int) -> None:
        super().__init__(area, name, seed)
        self._step: int | None = None

    @property
    def folder(self) -> Path:
        return self.area / "disk" / self.crew

    def reopen(self) -> None:
        self._step = None

    def resume(self) -> None:
        step, wrong = trained(self.folder)
        if wrong or (self._step is not None and step < self._step):
            self.say(broken=f"step {step} after {self._step}: {wrong}")
        self._step = step

    def train(self) -> None:
        from holdfast.training import save_checkpoint

        if self._step is None:
            self.resume()
        assert self._step is not None
        step = self._step + 1
        metrics = {"loss": float(int(_digest("loss", step)[:6], 16))}
        save_checkpoint(self.folder, step, weights_of(step), metrics=metrics, best_key="loss", keep_last_k=3, rng=False)
        self._step = step
        self.say(trained=step)

    def verify(self) -> None:
        from holdfast.training import CheckpointManager

        if self._step:
            found = CheckpointManager(self.folder).verify()
            if not found.ok:
                self.say(broken=f"verify: {found}")


def weights_of(step: int) -> dict[str, Any]:
    """What training has come to at a step: the same whoever makes it. Three of four tensors change with each."""
    import numpy

    made = {
        f"layer{each}": numpy.random.default_rng(step * 4 + each).standard_normal(4000, numpy.float32)
        for each in range(3)
    }
    return {"model": {**made, "frozen": numpy.arange(4000.0)}, "step": step}


def trained(folder: Path) -> tuple[int, str]:
    """The step that a run can go on from, and what is wrong with it."""
    import numpy

    from holdfast.training import load_checkpoint

    try:
        found = load_checkpoint(folder / "last")
    except NotFound:
        return 0, ""
    step = int(found["step"])
    expected = weights_of(step)["model"]
    same = {name: numpy.array_equal(expected[name], numpy.asarray(found["model"][name])) for name in expected}
    return step, "" if all(same.values()) else f"other weights: {same}"


def compare_training(area: Path, said: Said, report: Any, crew: str) -> None:
    from holdfast.training import CheckpointManager

    steps = [each["trained"] for each in said if "trained" in each]
    if not steps:
        return
    step, wrong = trained(area / "disk" / crew)
    report.counts["training steps that were saved"] += len(steps)
    if wrong or step < max(steps):
        report.losses.append(f"{crew} goes on from step {step}, and {max(steps)} was saved: {wrong}")
    found = CheckpointManager(area / "disk" / crew).verify()
    if not found.ok:
        report.losses.append(f"{crew}: verify: {found}")


# an index


class Index(Process):
    """Edits documents, and indexes them."""

    operations: ClassVar = {"edit": 8, "apply": 3, "search": 2}

    def __init__(self, area: Path, name: str, seed: int) -> None:
        super().__init__(area, name, seed)
        self._run: Any = None

    @property
    def folder(self) -> Path:
        return self.area / "disk" / f"docs-{self.crew}"

    def reopen(self) -> None:
        if self._run is not None:
            with contextlib.suppress(HoldfastError):
                self._run.close()
        self._run = None

    @property
    def run(self) -> Any:
        if self._run is None:
            self._run = open_index(self.area, self.crew, self._embed)
        return self._run

    def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.say(embedded=[_digest(text, 0)[:12] for text in texts])
        return embed(texts)

    def edit(self) -> None:
        path = self.folder / f"document{self.chance.randrange(DOCUMENTS)}.md"
        path.parent.mkdir(exist_ok=True)
        if self.chance.random() < 0.15:
            path.unlink(missing_ok=True)
            return
        beside = path.with_suffix(".new")
        beside.write_text(f"{path.stem} {self.chance.randbytes(TEXT_BYTES).hex()}")
        beside.replace(path)

    def apply(self) -> None:
        self.folder.mkdir(exist_ok=True)
        done = self.run.apply(self.run.plan())
        self.say(indexed=done.ok)

    def search(self) -> None:
        for path in sorted(self.folder.glob("*.md"))[:3]:
            self.run.search("dense", embed([path.read_text()])[0])


def open_index(area: Path, crew: str, model: Any) -> Any:
    from holdfast.indexing import Channel, FlatStore, FolderSource, IndexRun, Pipeline

    disk = area / "disk"
    (disk / f"docs-{crew}").mkdir(exist_ok=True)
    pipeline = Pipeline(
        source=FolderSource(disk / f"docs-{crew}", include=["*.md"]),
        embed={"dense": Channel(model, model="soak-1")},
        store=FlatStore(disk / f"vectors-{crew}.db"),
    )
    return IndexRun(ledger=disk / f"ledger-{crew}.db", pipeline=pipeline)


def embed(texts: Sequence[str]) -> list[list[float]]:
    return [[byte - 127.5 for byte in hashlib.sha256(text.encode()).digest()[:16]] for text in texts]


def compare_index(area: Path, said: Said, report: Any, crew: str) -> None:
    """After a last apply each document answers its own text, and no other document is left."""
    from holdfast.indexing.spaces import CANARIES

    sent = Counter(digest for each in said for digest in each.get("embedded", ()))
    for each in CANARIES:  # sent with each apply that embeds, to see whether it is the same model
        sent.pop(_digest(each, 0)[:12], None)
    report.counts["texts embedded"] += len(sent)
    report.counts["texts embedded more than once"] += sum(count - 1 for count in sent.values())
    if not any("indexed" in each for each in said):
        return
    with contextlib.closing(open_index(area, crew, embed)) as run:
        run.apply(run.plan())
        if not run.plan().is_empty:
            report.losses.append(f"{crew} has still to do: {run.plan()}")
        known = {path.name: path.read_text() for path in (area / "disk" / f"docs-{crew}").glob("*.md")}
        found = {name: run.search("dense", embed([text])[0])[0].document for name, text in known.items()}
        report.counts["documents compared"] += len(found)
        report.losses += [f"{crew}: {name} answers as {other}" for name, other in found.items() if name != other]
        problems = run.verify()
        if not problems.ok:
            report.losses.append(f"{crew}: verify: {problems}")


# a coding agent in the folder


class Agent(Process):
    """A coding agent: prompts, tools that edit, each told to the hook of a process of its own; now and then undone."""

    operations: ClassVar = {"turn": 5, "undo_agent": 1}

    def __init__(self, area: Path, name: str, seed: int) -> None:
        super().__init__(area, name, seed)
        self._own = area / "disk" / "ws" / self.crew
        self._session = f"{name}-session"
        self._environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("HOLDFAST_", "XDG_", "GIT_"))},
            **environ_of(area),
            "HOLDFAST_HELPER": "0",
        }

    def turn(self) -> None:
        prompt = f"prompt-{self.chance.randbytes(4).hex()}"
        self._tell("UserPromptSubmit", prompt=prompt)
        for _ in range(self.chance.randrange(1, 4)):
            tool = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": f"{self.chance.random()}"}
            self._tell("PreToolUse", **tool)
            self._edit()
            self._tell("PostToolUse", **tool, tool_response={})
        self._tell("Stop")

    def undo_agent(self) -> None:
        self._run("undo", "--agent", "claude-code", "--yes")

    def _edit(self) -> None:
        from soak import replace_text  # the other half of these two files

        with contextlib.suppress(OSError):
            replace_text(self, self._own)

    def _tell(self, event: str, **fields: Any) -> None:
        told = {"session_id": self._session, "cwd": str(self._own.parent), "hook_event_name": event, **fields}
        self._run("hook", "claude-code", stdin=json.dumps(told))

    def _run(self, *words: str, stdin: str = "") -> None:
        self._own.parent.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "holdfast", *words]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, env=self._environ, cwd=self._own.parent, check=False
        )
        if "Traceback" in done.stderr or done.returncode < 0:
            self.say(broken=f"{words}: {done.returncode}", trace=done.stderr)
        elif done.returncode:
            self.say(refused=" ".join(words), why=done.stderr[:200])


def environ_of(area: Path) -> dict[str, str]:
    return {"HOME": str(area / "home"), "HOLDFAST_STORE_ROOT": str(area / "disk" / "stores")}


# upkeep of the folder


class Upkeep(Process):
    """Prunes, thins, compacts and verifies, and purges a file that it made itself."""

    operations: ClassVar = {"prune": 2, "thin": 2, "verify": 2, "usage": 1, "purge": 2, "compact": 1}

    @property
    def ws(self) -> Workspace:
        from soak import open_workspace

        return open_workspace(self.area, self.now)

    def prune(self) -> None:
        from soak import texts_of

        ws = self.ws
        plan = ws.prune(Policy(keep_last=300))
        for each in plan.removed:
            self.say(deleting=each.id, gone=texts_of(self.area, each.commit))
        ws.prune(Policy(keep_last=300), dry_run=False, plan=plan)

    def thin(self) -> None:
        from soak import texts_of

        ws = self.ws
        young = self.now() - timedelta(hours=20)  # these stay
        for each in ws.list(None, safety=True):  # which of the others go is known only afterwards
            if each.timestamp < young:
                self.say(deleting=each.id, gone=texts_of(self.area, each.commit))
        ws.thin()

    def verify(self) -> None:
        found = self.ws.verify()
        if not found.ok:
            self.say(broken=f"verify: {found}")

    def usage(self) -> None:
        self.ws.usage()

    def compact(self) -> None:
        self.ws.compact()

    def purge(self) -> None:
        """A secret comes in with a file, and is purged from every checkpoint there was."""
        ws, folder = self.ws, self.area / "disk" / "ws" / self.crew
        folder.mkdir(parents=True, exist_ok=True)
        secret, path = f"secret-{self.chance.randbytes(12).hex()}", folder / f"key{self.chance.randrange(1 << 30)}"
        try:
            try:
                path.write_text(secret)
            except OSError:  # the disk is full: no secret came in
                return
            ws.save("with a secret")
        finally:
            path.unlink(missing_ok=True)
        newest = ws.list(1)[0].sequence
        with contextlib.suppress(NotFound):  # another process restored an earlier moment before the save
            ws.purge(f"{self.crew}/{path.name}")
            self.say(purged=secret, name=f"{self.crew}/{path.name}", until=newest)


def compare_purges(area: Path, ws: Workspace, said: Said, report: Any) -> None:
    """No checkpoint that there was when a purge began has the file."""
    from soak import listing_of

    purged: dict[str, int] = {each["name"]: each["until"] for each in said if "purged" in each}
    report.counts["purges compared"] = len(purged)
    by_name: dict[str, list[int]] = defaultdict(list)
    for checkpoint in ws.list(None, safety=True):
        for name in listing_of(area, checkpoint.commit):
            if name in purged:
                by_name[name].append(checkpoint.sequence)
    report.losses += [
        f"{name} was purged, and is in {found}" for name, found in by_name.items() if min(found) <= purged[name]
    ]


def _digest(text: str, number: int) -> str:
    return hashlib.sha256(f"{text} {number}".encode()).hexdigest()


def flatten(said: Iterable[Said]) -> list[Mapping[str, Any]]:
    return [each for many in said for each in many]
