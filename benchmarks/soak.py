"""Endurance: many processes use one workspace while they are killed and stopped and the disk fills up.

    python benchmarks/soak.py                          # two minutes, four workers, a seed that is printed
    python benchmarks/soak.py --seconds 600 --seed 7   # longer, with the random choices of an earlier run

Each worker edits files and saves, restores, undoes, deletes, merges and verifies, and logs what it did. The model reads
the logs at the end and knows what must exist:

- a checkpoint whose `save` returned exists until somebody asked to delete it, and contains what its worker saw;
- a text that was in the folder, and that its own worker did not overwrite, is in the folder or in a checkpoint (P1);
- no operation ends in anything but success or an error of Holdfast's own;
- after it all `verify` and `git fsck` find nothing, and checkpoints restore exactly, and so do their undos.

Texts are unique, and files are replaced by rename, as editors do: a program that writes into a file that it holds open
while a restore replaces it is outside of what anybody can promise. Exit status 1 if anything is lost.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast import HoldfastError, Workspace
from holdfast.testing.disk_contract import describe, differences

DISK_BYTES = 96 << 20
FILES = 8
TEXT = re.compile(rb"text-[0-9a-f]{24}")
OPERATIONS = {
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
SHOWN = 10


def main() -> None:
    """Run for a bounded time, compare with the model, print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--worker", nargs=2, metavar=("AREA", "NAME"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        Worker(Path(options.worker[0]), options.worker[1], options.seed).work()
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-") as area:
        report = soak(Path(area), seconds=options.seconds, workers=options.workers, seed=options.seed)
    print("\n".join(report.lines()))
    sys.exit(bool(report.losses))


@dataclass
class Report:
    """What happened, and what is not as it must be."""

    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    losses: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        yield f"seed {self.seed}"
        yield from (f"{name:<40} {count:>12,}" for name, count in sorted(self.counts.items()))
        yield f"{'losses':<40} {len(self.losses):>12,}"
        yield from self.losses[:SHOWN]


def soak(area: Path, *, seconds: float, workers: int, seed: int) -> Report:
    """Let workers use one workspace in `area`, disturb them, and compare what is left with the model."""
    report, chance = Report(seed), random.Random(seed)
    for name in ("disk", "logs", "home"):
        (area / name).mkdir()
    with _small_disk(area / "disk") as is_small:
        (area / "disk" / "ws").mkdir()
        crew = [Crew(area, number, chance.randrange(1 << 32)) for number in range(workers)]
        try:
            _disturb(crew, area, chance, report, seconds=seconds, fill=is_small)
        finally:
            for each in crew:
                each.kill()
        report.counts["the disk could be filled"] = int(is_small)
        _compare(area, chance, report)
    return report


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[bool]:
    """A disk of its own that can be filled to the last byte; False where this user may not mount one."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0700", "tmpfs", str(folder)]
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
    """One worker's process, started again each time it is killed."""

    def __init__(self, area: Path, number: int, seed: int) -> None:
        self._area, self._number, self._seed, self._lives = area, number, seed, 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._lives += 1
        name = f"worker{self._number}-{self._lives}"
        command = [sys.executable, __file__, "--seed", str(self._seed + self._lives), "--worker", str(self._area), name]
        with open(self._area / "logs" / f"{name}.stderr", "wb") as errors:
            self.process = subprocess.Popen(command, stderr=errors, stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def _disturb(
    crew: list[Crew], area: Path, chance: random.Random, report: Report, *, seconds: float, fill: bool
) -> None:
    """Kill, stop and continue workers and fill the disk, at random moments, until the time is over."""
    end = time.monotonic() + seconds
    ballast = area / "disk" / "ballast"
    while time.monotonic() < end:
        for each in crew:
            if each.process is None or each.process.poll() is not None:
                report.counts["processes"] += 1
                each.start()
        time.sleep(chance.random() * 0.6)
        what, victim = chance.choice(["kill", "kill", "kill", "stop", "full"]), chance.choice(crew)
        if what == "kill":
            report.counts["kills"] += 1
            victim.kill()
        elif what == "stop" and victim.process is not None:
            report.counts["stops"] += 1
            victim.process.send_signal(signal.SIGSTOP)
            time.sleep(chance.random() * 0.4)
            victim.process.send_signal(signal.SIGCONT)
        elif what == "full" and fill:
            report.counts["times the disk was full"] += 1
            _fill(ballast, spare=chance.choice([0, 0, 4096, 65536]))
            time.sleep(chance.random() * 0.8)
            ballast.unlink()


def _fill(ballast: Path, *, spare: int) -> None:
    """Take what is free on the disk but for `spare` bytes."""
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
        status = os.statvfs(ballast)
        os.posix_fallocate(file.fileno(), 0, max(status.f_bavail * status.f_frsize - spare, 1))


# working


class Worker:
    """One process: edits its own folder of the workspace, uses the store that it shares with the others, and logs."""

    def __init__(self, area: Path, name: str, seed: int) -> None:
        self._area, self._chance = area, random.Random(seed)
        self._own = area / "disk" / "ws" / name.partition("-")[0]
        self._log = open(area / "logs" / f"{name}.jsonl", "a", buffering=1)  # noqa: SIM115 (open until the kill)
        self._ws: Workspace | None = None

    def work(self) -> None:
        while True:
            what = self._chance.choices(list(OPERATIONS), weights=list(OPERATIONS.values()))[0]
            try:
                getattr(self, f"_{what}")()
            except HoldfastError as error:
                self._ws = None  # open it again: the store may not have been made yet, or be of an earlier moment
                self._say(refused=type(error).__name__)
            except OSError as error:
                if what != "edit":
                    self._say(broken=f"{what}: {error}", trace=traceback.format_exc())
            except Exception as error:
                self._say(broken=f"{what}: {type(error).__name__}: {error}", trace=traceback.format_exc())
            else:
                self._say(did=what)

    @property
    def ws(self) -> Workspace:
        if self._ws is None:
            self._ws = open_workspace(self._area)
        return self._ws

    def _edit(self) -> None:
        """Replace, make or remove a file by rename. Said before: what may be gone; said after: what must exist."""
        path = self._own / f"folder{self._chance.randrange(3)}" / f"file{self._chance.randrange(FILES)}"
        with contextlib.suppress(FileNotFoundError):
            self._say(gone=_texts(path.read_bytes()))
        if self._chance.random() < 0.2:
            path.unlink(missing_ok=True)
            return
        text = f"text-{self._chance.randbytes(12).hex()}"
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.{self._chance.randrange(1 << 30)}~")
        beside.write_text(text + "\n" + self._chance.randbytes(self._chance.randrange(2000)).hex())
        beside.replace(path)
        self._say(wrote=text)

    def _save(self) -> None:
        before = self._look()
        made = self.ws.save(allow_empty=self._chance.random() < 0.3)
        if before and before == self._look():  # nobody restored meanwhile: these are what the checkpoint contains
            self._say(saved=made.id, contains={path: texts for path, (texts, _) in before.items()})

    def _restore(self) -> None:
        listed = self.ws.list(20)
        if listed:
            mine = [self._own.name] if self._chance.random() < 0.5 else None
            self.ws.restore(self._chance.choice(listed).id, mine)

    def _undo(self) -> None:
        self.ws.undo()

    def _redo(self) -> None:
        self.ws.redo()

    def _delete(self) -> None:
        listed = self.ws.list(40)
        if len(listed) > 10:
            chosen = self._chance.choice(listed)
            self._say(deleting=chosen.id, gone=_texts_of(self._area, chosen.commit))
            self.ws.delete(chosen.id)

    def _merge(self) -> None:
        self.ws.merge()

    def _verify(self) -> None:
        found = open_workspace(self._area).verify()
        if not found.ok:
            self._say(broken=f"verify: {found}")

    def _list(self) -> None:
        listed = self.ws.list(None)
        if [each.sequence for each in listed] != sorted({each.sequence for each in listed}, reverse=True):
            self._say(broken="list: not in order of sequence")

    def _look(self) -> dict[str, tuple[list[str], int]]:
        """The texts of the worker's own files, and the times that any change of them changes."""
        found = {}
        for path in sorted(self._own.rglob("*")):
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                found[str(path.relative_to(self._own.parent))] = (_texts(path.read_bytes()), path.stat().st_ctime_ns)
        return found

    def _say(self, **words: Any) -> None:
        self._log.write(json.dumps(words) + "\n")


def open_workspace(area: Path) -> Workspace:
    return Workspace(area / "disk" / "ws", store=area / "disk" / "store", home=area / "home", environ={})


def _texts(content: bytes) -> list[str]:
    return [text.decode() for text in TEXT.findall(content)]


# the model


def _compare(area: Path, chance: random.Random, report: Report) -> None:
    """Compare what is on disk with what the logs say must be there."""
    said = [json.loads(line) for path in sorted((area / "logs").glob("*.jsonl")) for line in _whole_lines(path)]
    report.losses += [each["broken"] + "\n" + each.get("trace", "") for each in said if "broken" in each]
    for path in sorted((area / "logs").glob("*.stderr")):
        report.losses += [f"{path.name}: {text}" for text in [path.read_text(errors="replace").strip()] if text]
    report.counts.update(f"operations: {each['did']}" for each in said if "did" in each)
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
    report.counts["bytes of the store"] = sum(
        path.stat().st_size for path in (area / "disk" / "store").rglob("*") if path.is_file()
    )


def _whole_lines(path: Path) -> Iterable[str]:
    return path.read_text().rpartition("\n")[0].splitlines()  # a kill may cut the last one


def _compare_texts(area: Path, ws: Workspace, said: list[dict[str, Any]], report: Report) -> None:
    """P1: what was written and not overwritten by its own writer is somewhere."""
    written = {each["wrote"] for each in said if "wrote" in each}
    may_be_gone = {text for each in said for text in each.get("gone", ())}
    there = {text for path in ws.path.rglob("*") if path.is_file() for text in _texts(path.read_bytes())}
    for checkpoint in ws.list(None, safety=True):
        there.update(_texts_of(area, checkpoint.commit))
    report.counts["texts that must exist"] = len(written - may_be_gone)
    report.losses += [f"lost: {text}" for text in sorted(written - may_be_gone - there)]


def _compare_checkpoints(area: Path, ws: Workspace, said: list[dict[str, Any]], report: Report) -> None:
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


def _texts_of(area: Path, commit: str) -> list[str]:
    return [text for texts in _files_of(area, commit, "").values() for text in texts]


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
    command = ["git", f"--git-dir={area / 'disk' / 'store'}", *words]
    done = subprocess.run(command, input=stdin, capture_output=True, env=environ, cwd=area, check=False)
    return done.stdout + (done.stderr if words[0] == "fsck" else b"")


if __name__ == "__main__":
    main()
