"""Endurance: many processes use what Holdfast keeps while they are killed and stopped, and disks fill up.

    python benchmarks/soak.py                          # two minutes, four workers, a seed that is printed
    python benchmarks/soak.py --seconds 600 --seed 7   # longer, with the random choices of an earlier run
    python benchmarks/soak.py --everything             # also agents, a watcher, upkeep, states, training, an index

Each worker edits files and saves, restores, undoes, deletes, merges and verifies, and logs what it did. The model reads
the logs at the end and knows what must exist:

- a checkpoint whose `save` returned exists until somebody asked to delete it, and contains what its worker saw;
- a text that was in the folder, and that its own worker did not overwrite, is in the folder or in a checkpoint (P1);
- no operation ends in anything but success or an error of Holdfast's own;
- after it all `verify` and `git fsck` find nothing, and checkpoints restore exactly, and so do their undos.

Texts are unique, and files are replaced by rename, as editors do: a program that writes into a file that it holds open
while a restore replaces it is outside of what anybody can promise. Exit status 1 if anything is lost.

With `--everything` (soak_kinds.py) there are also 200 sessions in a PostgreSQL whose processes are killed, too, a
training run and an index on the disk that fills up, and clocks that jump: those that date checkpoints. The clock of the
kernel, which dates files, is nobody's to set here. A process of each kind is left alone; how its memory and its
descriptors grow is in the report.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).parent))
import soak_kinds
from holdfast import Workspace
from holdfast.testing.disk_contract import describe, differences
from soak_kinds import Process

DISK_BYTES = 96 << 20
EVERYTHING_BYTES = 512 << 20
FILES = 8
TEXT = re.compile(rb"text-[0-9a-f]{24}")
SHOWN = 10
SAMPLES = 20
"""How often in a run memory, descriptors and disk are looked at."""


def main() -> None:
    """Run for a bounded time, compare with the model, print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--everything", action="store_true")
    parser.add_argument("--worker", nargs=2, metavar=("AREA", "NAME"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        area, name = Path(options.worker[0]), options.worker[1]
        KINDS[name.partition("-")[0].rstrip("0123456789")](area, name, options.seed).work()
        return
    crew = {"worker": options.workers}
    if options.everything:
        crew |= {"agent": 1, "upkeep": 1, "states": soak_kinds.N_STATES, "training": 2, "index": 2}
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-") as area_name:
        report = soak(Path(area_name), crew, seconds=options.seconds, seed=options.seed)
    print("\n".join(report.lines()))
    sys.exit(bool(report.losses))


@dataclass
class Report:
    """What happened, and what is not as it must be."""

    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    losses: list[str] = field(default_factory=list)
    growth: dict[str, list[int]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        yield f"seed {self.seed}"
        yield from (f"{name:<40} {count:>12,}" for name, count in sorted(self.counts.items()))
        for name, values in sorted(self.growth.items()):
            yield f"{name:<40} {', then '.join(f'{value:,}' for value in values)}"
        yield f"{'losses':<40} {len(self.losses):>12,}"
        yield from self.losses[:SHOWN]


def soak(area: Path, kinds: Mapping[str, int], *, seconds: float, seed: int) -> Report:
    """Let processes of these kinds work in `area`, disturb them, and compare what is left with the model."""
    report, chance = Report(seed), random.Random(seed)
    for name in ("disk", "logs", "home"):
        (area / name).mkdir()
    size = EVERYTHING_BYTES if len(kinds) > 1 else DISK_BYTES
    with _small_disk(area / "disk", size) as is_small, contextlib.ExitStack() as stack:
        (area / "disk" / "ws").mkdir()
        data = stack.enter_context(_postgres(area)) if "states" in kinds else None
        crew = [
            Crew(area, f"{kind}{number}", chance.randrange(1 << 32), is_left_alone=kind != "worker" and number == 0)
            for kind, count in kinds.items()
            for number in range(count)
        ]
        if len(kinds) > 1:
            crew.append(Crew(area, "watcher0", 0, is_left_alone=True))
        growth = Growth(area, seconds)
        try:
            _disturb(crew, area, chance, report, seconds=seconds, fill=is_small, data=data, growth=growth)
        finally:
            for each in crew:
                each.kill()
        report.counts["the disk could be filled"] = int(is_small)
        growth.add_to(report)
        _compare(area, chance, report)
        _compare_others(area, report)
        if report.losses:  # to find out why
            kept = Path(tempfile.mkdtemp(prefix="holdfast-lost-"))
            with contextlib.suppress(shutil.Error):  # a socket
                shutil.copytree(area, kept, symlinks=True, dirs_exist_ok=True, ignore=lambda *_: ["server"])
            report.losses.insert(0, f"all of it is kept in {kept}")
    return report


class Growth:
    """What is looked at from time to time, to see whether it grows."""

    def __init__(self, area: Path, seconds: float) -> None:
        self._area, self._every, self._next = area, seconds / SAMPLES, time.monotonic() + seconds / SAMPLES
        self._seen: dict[str, list[int]] = {}

    def look(self, crew: list[Crew]) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every
        for each in crew:
            if each.is_left_alone and each.process is not None and each.process.poll() is None:
                with contextlib.suppress(OSError):
                    pages = int(Path(f"/proc/{each.process.pid}/statm").read_text().split()[1])
                    self._add(f"{each.name}: KiB of memory", pages * os.sysconf("SC_PAGE_SIZE") >> 10)
                    self._add(f"{each.name}: descriptors", len(os.listdir(f"/proc/{each.process.pid}/fd")))
        self._add("bytes of the folder's store", _size(self._area / "disk" / "stores"))
        self._add("bytes of the training runs", sum(map(_size, (self._area / "disk").glob("training*"))))

    def _add(self, what: str, value: int) -> None:
        self._seen.setdefault(what, []).append(value)

    def add_to(self, report: Report) -> None:
        for what, values in self._seen.items():
            report.growth[what] = [values[0], values[len(values) // 2], values[-1]]


def _size(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):  # skips a folder that is removed meanwhile
        for name in names:
            with contextlib.suppress(OSError):  # it may be gone
                total += os.lstat(os.path.join(parent, name)).st_size
    return total


@contextlib.contextmanager
def _postgres(area: Path) -> Iterator[Path]:
    """A PostgreSQL for the states; the folder of its data. Its URL is in a file."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import servers

    (area / "server").mkdir()
    with servers.postgres(area / "server") as url:
        (area / "postgres").write_text(url)
        yield area / "server" / "data"


@contextlib.contextmanager
def _small_disk(folder: Path, size: int) -> Iterator[bool]:
    """A disk of its own that can be filled to the last byte; False where this user may not mount one."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", str(folder)]
    try:
        is_mounted = not subprocess.run(command, capture_output=True, check=False).returncode
    except OSError:
        is_mounted = False
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


# disturbing


class Crew:
    """One process, started again each time it is killed."""

    def __init__(self, area: Path, name: str, seed: int, *, is_left_alone: bool = False) -> None:
        self.name, self.is_left_alone = name, is_left_alone
        self._area, self._seed, self._lives = area, seed, 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._lives += 1
        name = f"{self.name}-{self._lives}"
        environ, cwd = None, None
        command = [sys.executable, __file__, "--seed", str(self._seed + self._lives), "--worker", str(self._area), name]
        if self.name.startswith("watcher"):
            command = [sys.executable, "-m", "holdfast", "watch", "--quiet", "0.5", "--every", "5"]
            environ, cwd = {**os.environ, **soak_kinds.environ_of(self._area)}, self._area / "disk" / "ws"
        with open(self._area / "logs" / f"{name}.stderr", "wb") as errors:
            self.process = subprocess.Popen(
                command, stderr=errors, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environ, cwd=cwd
            )

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def _disturb(
    crew: list[Crew],
    area: Path,
    chance: random.Random,
    report: Report,
    *,
    seconds: float,
    fill: bool,
    data: Path | None,
    growth: Growth,
) -> None:
    """Kill, stop and continue processes and fill the disk, at random moments, until the time is over."""
    end = time.monotonic() + seconds
    ballast = area / "disk" / "ballast"
    victims = [each for each in crew if not each.is_left_alone]
    kinds = ["kill", "kill", "kill", "stop", "full"] + ["database"] * (data is not None)
    while time.monotonic() < end:
        for each in crew:
            if each.process is None or each.process.poll() is not None:
                report.counts["processes"] += 1
                each.start()
        time.sleep(chance.random() * 0.6)
        growth.look(crew)
        what, victim = chance.choice(kinds), chance.choice(victims)
        if what == "kill":
            report.counts["kills"] += 1
            victim.kill()
        elif what == "stop" and victim.process is not None:
            report.counts["stops"] += 1
            victim.process.send_signal(signal.SIGSTOP)
            time.sleep(chance.random() * 0.4)
            victim.process.send_signal(signal.SIGCONT)
        elif what == "database" and data is not None and chance.random() < 0.1:
            report.counts["kills of the database"] += _kill_backend(data, chance)
        elif what == "full" and fill:
            report.counts["times the disk was full"] += 1
            _fill(ballast, spare=chance.choice([0, 0, 4096, 65536]))
            time.sleep(chance.random() * 0.8)
            ballast.unlink()


def _kill_backend(data: Path, chance: random.Random) -> int:
    """Kill one of the server's own processes: PostgreSQL then ends all others, and recovers from its log."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        server = (data / "postmaster.pid").read_text().split("\n")[0]
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        os.kill(int(chance.choice(children)), signal.SIGKILL)
        return 1
    return 0


def _fill(ballast: Path, *, spare: int) -> None:
    """Take what is free on the disk but for `spare` bytes."""
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
        status = os.statvfs(ballast)
        os.posix_fallocate(file.fileno(), 0, max(status.f_bavail * status.f_frsize - spare, 1))


# working


class Worker(Process):
    """Edits its own folder of the workspace, and uses the store that it shares with the others."""

    operations: ClassVar = {
        "edit": 10,
        "save": 6,
        "restore": 3,
        "undo": 2,
        "redo": 1,
        "delete": 1,
        "merge": 1,
        "verify": 1,
        "list": 2,
    }

    def __init__(self, area: Path, name: str, seed: int) -> None:
        super().__init__(area, name, seed)
        self._own = area / "disk" / "ws" / self.crew
        self._ws: Workspace | None = None

    def reopen(self) -> None:
        self._ws = None

    @property
    def ws(self) -> Workspace:
        if self._ws is None:
            self._ws = open_workspace(self.area, self.now)
        return self._ws

    def edit(self) -> None:
        replace_text(self, self._own)

    def save(self) -> None:
        before = self._look()
        made = self.ws.save(allow_empty=self.chance.random() < 0.3)
        if before and before == self._look():  # nobody restored meanwhile: these are what the checkpoint contains
            self.say(saved=made.id, contains={path: texts for path, (texts, _) in before.items()})

    def restore(self) -> None:
        listed = self.ws.list(20)
        if listed:
            mine = [self._own.name] if self.chance.random() < 0.5 else None
            self.ws.restore(self.chance.choice(listed).id, mine)

    def undo(self) -> None:
        self.ws.undo()

    def redo(self) -> None:
        self.ws.redo()

    def delete(self) -> None:
        listed = self.ws.list(40)
        if len(listed) > 10:
            chosen = self.chance.choice(listed)
            self.say(deleting=chosen.id, gone=texts_of(self.area, chosen.commit))
            self.ws.delete(chosen.id)

    def merge(self) -> None:
        self.ws.merge()

    def verify(self) -> None:
        found = open_workspace(self.area).verify()
        if not found.ok:
            self.say(broken=f"verify: {found}")

    def list(self) -> None:
        listed = self.ws.list(None)
        if [each.sequence for each in listed] != sorted({each.sequence for each in listed}, reverse=True):
            self.say(broken="list: not in order of sequence")

    def _look(self) -> dict[str, tuple[list[str], int]]:
        """The texts of the worker's own files, and the times that any change of them changes."""
        found = {}
        paths = (Path(parent, name) for parent, _, names in os.walk(self._own) for name in names)
        for path in sorted(paths):
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                found[str(path.relative_to(self._own.parent))] = (_texts(path.read_bytes()), path.stat().st_ctime_ns)
        return found


KINDS: Mapping[str, Callable[[Path, str, int], Process]] = {
    "worker": Worker,
    "agent": soak_kinds.Agent,
    "upkeep": soak_kinds.Upkeep,
    "states": soak_kinds.States,
    "training": soak_kinds.Training,
    "index": soak_kinds.Index,
}


def replace_text(process: Process, folder: Path) -> None:
    """Replace, make or remove a file by rename. Said before: what may be gone; said after: what must exist."""
    path = folder / f"folder{process.chance.randrange(3)}" / f"file{process.chance.randrange(FILES)}"
    with contextlib.suppress(FileNotFoundError):
        process.say(gone=_texts(path.read_bytes()))
    if process.chance.random() < 0.2:
        path.unlink(missing_ok=True)
        return
    text = f"text-{process.chance.randbytes(12).hex()}"
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{process.chance.randrange(1 << 30)}~")
    size = process.chance.choice((0, 500, process.chance.randrange(2000)))  # often that of the file before
    beside.write_text(text + "\n" + process.chance.randbytes(size).hex())
    beside.replace(path)
    process.say(wrote=text)


def open_workspace(area: Path, clock: Callable[[], datetime] | None = None) -> Workspace:
    environ = soak_kinds.environ_of(area)
    return Workspace(area / "disk" / "ws", home=area / "home", environ=environ, clock=clock)


@cache
def _store(area: Path) -> Path:
    return open_workspace(area).store


def _texts(content: bytes) -> list[str]:
    return [text.decode() for text in TEXT.findall(content)]


# the model


def _compare(area: Path, chance: random.Random, report: Report) -> None:
    """Compare what is on disk with what the logs say must be there."""
    said = soak_kinds.flatten(soak_kinds.logs(area, crew) for kind in KINDS for crew in soak_kinds.crews(area, kind))
    report.losses += [each["broken"] + "\n" + each.get("trace", "") for each in said if "broken" in each]
    for path in sorted((area / "logs").glob("*.stderr")):
        text = path.read_text(errors="replace").strip()
        if text and (not path.name.startswith("watcher") or "Traceback" in text):  # that one says when it waits
            report.losses.append(f"{path.name}: {text}")
    report.counts.update(f"operations: {each['did']}" for each in said if "did" in each)
    report.counts["clocks set"] = sum("jumped" in each for each in said)
    report.counts["operations"] = sum("did" in each for each in said)
    report.counts["operations refused"] = sum("refused" in each for each in said)
    ws = open_workspace(area)
    ws.save("after all")  # finishes what the last kill interrupted
    _compare_texts(area, ws, said, report)
    _compare_checkpoints(area, ws, said, report)
    _compare_restores(area, ws, chance, report)
    if not (found := ws.verify()).ok:
        report.losses.append(f"verify: {found}")
    fsck = _git(area, "fsck", "--strict", "--no-progress", "--no-dangling")
    report.losses += [f"git fsck: {line}" for line in fsck.decode().splitlines() if not line.startswith("notice: ")]
    report.counts["bytes of the store"] = _size(_store(area))
    soak_kinds.compare_purges(area, ws, said, report)


def _compare_others(area: Path, report: Report) -> None:
    """What is not in the folder: states, training runs, indexes."""
    states = soak_kinds.crews(area, "states")
    if states:
        soak_kinds.compare_states(area, soak_kinds.flatten(soak_kinds.logs(area, crew) for crew in states), report)
    for kind, compare in (("training", soak_kinds.compare_training), ("index", soak_kinds.compare_index)):
        for crew in soak_kinds.crews(area, kind):
            compare(area, soak_kinds.logs(area, crew), report, crew)


def _compare_texts(area: Path, ws: Workspace, said: list[Mapping[str, Any]], report: Report) -> None:
    """P1: what was written and not overwritten by its own writer is somewhere."""
    written = {each["wrote"] for each in said if "wrote" in each}
    may_be_gone = {text for each in said for text in each.get("gone", ())}
    there = {text for path in ws.path.rglob("*") if path.is_file() for text in _texts(path.read_bytes())}
    for checkpoint in ws.list(None, safety=True):
        there.update(texts_of(area, checkpoint.commit))
    report.counts["texts that must exist"] = len(written - may_be_gone)
    report.losses += [f"lost: {text}" for text in sorted(written - may_be_gone - there)]


def _compare_checkpoints(area: Path, ws: Workspace, said: list[Mapping[str, Any]], report: Report) -> None:
    """P3: what `save` returned exists, and contains what was saved."""
    deleted = {each["deleting"] for each in said if "deleting" in each}
    commits = {each.id: each.commit for each in ws.list(None, safety=True)}
    for each in said:
        if "saved" not in each or each["saved"] in deleted:
            continue
        report.counts["checkpoints that must exist"] += 1
        if each["saved"] not in commits:
            report.losses.append(f"checkpoint {each['saved']} is gone")
            continue
        own = next(iter(each["contains"])).partition("/")[0]
        found = _files_of(area, commits[each["saved"]], own)
        if found != each["contains"]:
            report.losses.append(f"checkpoint {each['saved']} contains {found}, not {each['contains']}")


def _compare_restores(area: Path, ws: Workspace, chance: random.Random, report: Report) -> None:
    """P2: a checkpoint restores as it is exported, and the undo brings back what was there."""
    listed = ws.list(None)
    for number, checkpoint in enumerate(chance.sample(listed, min(10, len(listed)))):
        before, exported = describe(ws.path), area / f"exported{number}"
        ws.export(checkpoint.id, exported)
        ws.restore(checkpoint.id)
        report.losses += [f"restore: {line}" for line in differences(describe(exported), describe(ws.path))]
        ws.undo()
        report.losses += [f"undo: {line}" for line in differences(before, describe(ws.path))]
        report.counts["restores compared"] += 1


def texts_of(area: Path, commit: str) -> list[str]:
    """The texts of all files of a checkpoint."""
    return [text for texts in _files_of(area, commit, "").values() for text in texts]


def listing_of(area: Path, commit: str) -> list[str]:
    """The names of all files of a checkpoint."""
    rows = _git(area, "ls-tree", "-r", "-z", commit, "files/").split(b"\0")
    return [row.partition(b"\t")[2].decode().removeprefix("files/") for row in rows if row]


def _files_of(area: Path, commit: str, below: str) -> dict[str, list[str]]:
    """The files of a checkpoint and their texts, as git reads them."""
    listing = _git(area, "ls-tree", "-r", "-z", commit, f"files/{below}" if below else "files/")
    rows = [row.partition(b"\t") for row in listing.split(b"\0") if row]
    blobs = b"".join(head.split()[2] + b"\n" for head, _, _ in rows)
    answer, found, at = _git(area, "cat-file", "--batch", stdin=blobs), {}, 0
    for _, _, name in rows:
        head, _, _ = answer[at:].partition(b"\n")
        start = at + len(head) + 1
        at = start + int(head.split()[2]) + 1
        found[name.decode().removeprefix("files/")] = _texts(answer[start : at - 1])
    return found


def _git(area: Path, *words: str, stdin: bytes = b"") -> bytes:
    environ = {"PATH": os.environ["PATH"], "HOME": str(area / "home"), "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", f"--git-dir={_store(area)}", *words]
    done = subprocess.run(command, input=stdin, capture_output=True, env=environ, cwd=area, check=False)
    return done.stdout + (done.stderr if words[0] == "fsck" else b"")


if __name__ == "__main__":
    main()
