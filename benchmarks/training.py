"""Checkpoints of a training state, side by side with what people use: `python benchmarks/training.py [--mb 1000]`.

Every contender of a row runs in turn, several times, and rows show medians and the ratio to the peer in the same run.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.api import CheckpointException

from holdfast.training import load_checkpoint, save_checkpoint, wait_for_save
from training_peers import Contender, contenders, torch_save

State = dict[str, Any]
FAILURES = (Exception, CheckpointException)
"""DCP's own is no `Exception`."""


def make_state(megabytes: int) -> State:
    """A model of about 67 tensors of uneven sizes, and two moments for each: about 200 tensors."""
    chooser = random.Random(0)
    sizes = [chooser.choice([0.01, 0.5, 1, 1, 2, 3]) for _ in range(67)]
    unit = megabytes * 1e6 / 4 / 3 / sum(sizes)
    model = {f"layer{at}.weight": torch.randn(int(size * unit)) for at, size in enumerate(sizes)}
    moments = {at: {"exp_avg": t * 0.1, "exp_avg_sq": t.square()} for at, t in enumerate(model.values())}
    return {"model": model, "optimizer": {"state": moments, "param_groups": [{"lr": 1e-3, "params": list(moments)}]}}


def flat(state: State) -> dict[str, torch.Tensor]:
    moments = state["optimizer"]["state"].items()
    return state["model"] | {f"o.{at}.{name}": tensor for at, pair in moments for name, tensor in pair.items()}


def change_a_tenth(state: State) -> None:
    for tensor in list(flat(state).values())[::10]:
        tensor.add_(1)


def put_into(loaded: Any, room: Any) -> None:
    """Copy what was loaded to where it belongs, as `load_state_dict` does: a map that nobody looks at is no load."""
    if isinstance(loaded, torch.Tensor):
        room.copy_(loaded)
    elif isinstance(loaded, dict):
        for key, value in loaded.items():
            put_into(value, room[key])


def drop_from_cache(files: Sequence[Path]) -> None:
    """Have the system forget what it remembers of files, so that the next to read them reads the disk."""
    os.sync()
    for file in files:
        with open(file, "rb") as handle:
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(act: Callable[[], Any]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


class Table:
    """Prints rows as they are measured."""

    def __init__(self) -> None:
        print("| work | Holdfast | peer | ratio | goal |\n|---|---|---|---|---|", flush=True)

    def times(self, work: str, ours: list[float], peer: str, theirs: list[float], goal: str) -> None:
        mine, other = statistics.median(ours), statistics.median(theirs)
        spread = f"{mine:.3f} s [{min(ours):.3f}–{max(ours):.3f}]"
        against = f"{peer} {other:.3f} s [{min(theirs):.3f}–{max(theirs):.3f}]"
        self.row(work, spread, against, f"{mine / other:.2f}", goal)

    def row(self, work: str, ours: str, peer: str, ratio: str, goal: str) -> None:
        if goal.startswith("≤ "):
            goal += ": met" if float(ratio) <= float(goal[2:]) else ": missed"
        print(f"| {work} | {ours} | {peer} | {ratio} | {goal} |", flush=True)


class Bench:
    def __init__(self, root: Path, megabytes: int, rounds: int) -> None:
        self.root = root
        self.rounds = rounds
        self.state = make_state(megabytes)
        self.table = Table()

    def fresh(self, name: str) -> Path:
        path = self.root / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        os.sync()
        return path

    def saving(self) -> None:
        first, again, peer_first, peer_again, share = [], [], [], [], []
        for _ in range(self.rounds):
            ours, theirs = self.fresh("ours"), self.fresh("theirs")
            peer_first.append(timed(lambda to=theirs: torch_save(self.state, to / "1.pt")))
            os.sync()
            first.append(timed(lambda to=ours: save_checkpoint(to, 1, self.state)))
            change_a_tenth(self.state)
            os.sync()
            peer_again.append(timed(lambda to=theirs: torch_save(self.state, to / "2.pt")))
            os.sync()
            start = time.perf_counter()
            meta = save_checkpoint(ours, 2, self.state)
            again.append(time.perf_counter() - start)
            share.append(meta["bytes_written"] / (theirs / "2.pt").stat().st_size)
        self.table.times("first save, verified and durable", first, "torch.save + fsync", peer_first, "≤ 1.2")
        self.table.times("save after 10 % changed", again, "torch.save + fsync", peer_again, "≤ 0.2")
        self.table.row("… its bytes", "", "torch.save", f"{statistics.median(share):.3f}", "≤ 0.12")

    def loading(self) -> None:
        folder = self.fresh("ours")
        tensors = flat(self.state)
        path = save_checkpoint(folder, 1, self.state)["path"]
        save_file(tensors, folder / "peer.safetensors")
        name = list(self.state["model"])[5]

        def one_peer() -> None:
            with safe_open(folder / "peer.safetensors", "pt") as file:
                put_into(file.get_tensor(name), tensors[name])

        def one_ours() -> None:
            put_into(load_checkpoint(path, only=[f"model.{name}"]), self.state)

        peer_file = folder / "peer.safetensors"
        whole: tuple[list[float], list[float]] = ([], [])
        cold: tuple[list[float], list[float]] = ([], [])
        one: tuple[list[float], list[float]] = ([], [])
        for _ in range(self.rounds + 1):  # the peer's pages are as its writing left them, ours as our reading did
            whole[1].append(timed(lambda: put_into(load_file(peer_file), tensors)))
            whole[0].append(timed(lambda: put_into(load_checkpoint(path), self.state)))
            one[1].append(timed(one_peer))
            one[0].append(timed(one_ours))
        for _ in range(self.rounds):
            drop_from_cache([peer_file, *Path(path).iterdir()])
            cold[1].append(timed(lambda: put_into(load_file(peer_file), tensors)))
            drop_from_cache([peer_file, *Path(path).iterdir()])
            cold[0].append(timed(lambda: put_into(load_checkpoint(path), self.state)))
        self.table.times("full load, verified, copied into a model", whole[0][1:], "safetensors", whole[1][1:], "≤ 1.5")
        self.table.times("… from the disk", cold[0], "safetensors", cold[1], "≤ 1.5")
        self.table.times("one tensor, verified", one[0][1:], "safetensors", one[1][1:], "≤ 5")

    def stalling(self) -> None:
        folder = self.fresh("ours")
        tensors = flat(self.state)
        room = {key: torch.empty_like(tensor) for key, tensor in tensors.items()}
        ours, copies, peers = [], [], []
        for step in range(self.rounds + 1):
            copies.append(timed(lambda: [room[key].numpy().__setitem__(..., t.numpy()) for key, t in tensors.items()]))
            ours.append(timed(lambda at=step: save_checkpoint(folder, at, self.state, block=False, keep_last_k=1)))
            wait_for_save()
        for step in range(self.rounds + 1):
            target = self.fresh("dcp") / str(step)
            start = time.perf_counter()
            future = dcp.async_save(self.state, checkpoint_id=target)
            peers.append(time.perf_counter() - start)
            future.result()
        self.table.times("stall of block=False, warm", ours[1:], "copying the bytes", copies[1:], "≤ 1.3")
        self.table.times("stall of block=False, warm", ours[1:], "dcp.async_save", peers[1:], "≤ 0.5")


SMALL_TENSORS = 20_000
SMALL_BYTES = 8 << 10


def small(table: Table, root: Path, rounds: int) -> None:
    """20,000 tensors of 8 KiB beside `safetensors`: with the file and its folder synced, as we do, and without."""
    state = {f"layer{at // 10}.part{at % 10}": torch.randn(SMALL_BYTES // 4) for at in range(SMALL_TENSORS)}
    tensors = list(state.values())
    room = {name: torch.empty_like(tensor) for name, tensor in state.items()}
    peer, synced = root / "small.safetensors", Times()
    plain, first, again, stretch, scattered = Times(), Times(), Times(), Times(), Times()
    loads, peer_loads = Times(), Times()
    shares: dict[str, list[float]] = {"stretch": [], "scattered": []}
    for _ in range(rounds):
        ours = root / "small"
        shutil.rmtree(ours, ignore_errors=True)
        for tensor in tensors:
            tensor.add_(1)
        plain.take(lambda: save_file(state, peer))
        synced.take(lambda: save_synced(state, peer))
        first.take(lambda to=ours: save_checkpoint(to, 1, state))
        again.take(lambda to=ours: save_checkpoint(to, 2, state))
        for tensor in tensors[: SMALL_TENSORS // 10]:
            tensor.add_(1)
        meta = stretch.take(lambda to=ours: save_checkpoint(to, 3, state))
        shares["stretch"].append(meta["bytes_written"] / peer.stat().st_size)
        for step in (4, 5):  # once, so that they lie together, and then once more
            for tensor in tensors[::10]:
                tensor.add_(1)
            meta = (scattered if step == 5 else Times()).take(lambda at=step, to=ours: save_checkpoint(to, at, state))
        shares["scattered"].append(meta["bytes_written"] / peer.stat().st_size)
        peer_loads.take(lambda: put_into(load_file(peer), room))
        loads.take(lambda path=meta["path"]: put_into(load_checkpoint(path), room))
    work = f"{SMALL_TENSORS:,} tensors of 8 KiB"
    peer_name = "safetensors + fsync"
    table.times(f"{work}: first save", first, peer_name, synced, "≤ 1.2")
    table.times("…", first, "safetensors, nothing synced", plain, "")
    table.times("… time of the processor", first.of_processor, peer_name, synced.of_processor, "")
    table.times("… again, nothing changed", again, peer_name, synced, "≤ 0.3")
    table.times("… time of the processor", again.of_processor, peer_name, synced.of_processor, "")
    table.times("… a tenth changed, in one stretch", stretch, peer_name, synced, "")
    table.row("… its bytes", "", "safetensors", f"{statistics.median(shares['stretch']):.3f}", "about 0.1")
    table.times("… a tenth changed, every tenth, for the second time", scattered, peer_name, synced, "")
    table.row("… its bytes", "", "safetensors", f"{statistics.median(shares['scattered']):.3f}", "about 0.1")
    table.times("… full load, verified, copied into a model", loads, "safetensors", peer_loads, "")


class Times(list[float]):
    """How long each of several tries took; and of the processor, which says more where others use the machine too."""

    def __init__(self) -> None:
        super().__init__()
        self.of_processor: list[float] = []

    def take(self, act: Callable[[], Any]) -> Any:
        os.sync()
        start, processor_start = time.perf_counter(), time.process_time()
        found = act()
        self.append(time.perf_counter() - start)
        self.of_processor.append(time.process_time() - processor_start)
        return found


def save_synced(state: dict[str, torch.Tensor], path: Path) -> None:
    """What a save of safetensors takes until it would survive a power loss, as ours do when they return."""
    save_file(state, path)
    for synced in (path, path.parent):
        fd = os.open(synced, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def flipped(table: Table, root: Path, peers: dict[str, Contender]) -> None:
    """One flipped bit in 60 random places: how many are noticed, and how many loaded silently."""
    state = make_state(20)
    found = {}
    for name, contender in peers.items():
        folder = root / f"flips-{name}"
        folder.mkdir()
        contender.save(folder, 1, state)
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
        if name == "Holdfast":
            files = [path for path in files if path.parent.name.startswith("step-")]  # the rest is not needed to load
        load = partial(contender.load, folder, make_state(20))
        found[name] = sum(_is_found(files, load, seed) for seed in range(60))
    others = ", ".join(f"{name} {count}" for name, count in found.items() if name != "Holdfast")
    table.row("one flipped bit, 60 places: noticed", str(found["Holdfast"]), others, "", "60")


def _is_found(files: list[Path], load: Callable[[], Any], seed: int) -> bool:
    chooser = random.Random(seed)
    sizes = [file.stat().st_size for file in files]
    at = chooser.randrange(sum(sizes))
    number = 0
    while at >= sizes[number]:
        at -= sizes[number]
        number += 1
    bit = 1 << chooser.randrange(8)
    _flip(files[number], at, bit)
    try:
        load()
    except FAILURES:
        return True
    finally:
        _flip(files[number], at, bit)
    return False


def _flip(file: Path, at: int, bit: int) -> None:
    file.chmod(0o644)
    with open(file, "r+b") as handle:
        handle.seek(at)
        byte = handle.read(1)[0]
        handle.seek(at)
        handle.write(bytes([byte ^ bit]))


_SAVER = """
import sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[3])
from training import make_state
from training_peers import contenders
save = contenders()[sys.argv[1]].save
state = make_state(200)
print("ready", flush=True)
sys.stdin.readline()
step = 2
while True:
    save(Path(sys.argv[2]), step, state)
    step += 1
    state["model"]["layer0.weight"].add_(1)
"""


def killed(table: Table, root: Path, tries: int, peers: dict[str, Contender]) -> None:
    """`kill -9` while a good checkpoint is being replaced: how often something loads afterwards."""
    loads = dict.fromkeys(peers, 0)
    state = make_state(200)
    for name, contender in peers.items():
        for seed in range(tries):
            folder = root / f"kill-{name}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            contender.save(folder, 1, state)
            _kill_while_saving(name, folder, random.Random(seed).uniform(0.02, 0.4))
            loads[name] += _loads(contender, folder, state)
    others = ", ".join(f"{name} {count}" for name, count in loads.items() if name != "Holdfast")
    table.row(f"kill −9 while saving, {tries} times: loads", str(loads["Holdfast"]), others, "", "all")


def _loads(contender: Contender, folder: Path, *rooms: State) -> bool:
    """Whether anything loads, into one of these rooms."""
    for room in rooms:
        try:
            contender.load(folder, room)
            return True
        except FAILURES:
            continue
    return False


def _kill_while_saving(name: str, folder: Path, after_s: float) -> None:
    words = [sys.executable, "-c", _SAVER, name, str(folder), str(Path(__file__).parent)]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdout.readline()
    child.stdin.write(b"go\n")
    child.stdin.flush()
    time.sleep(after_s)
    child.send_signal(signal.SIGKILL)
    child.wait()


def full(table: Table, root: Path, peers: dict[str, Contender]) -> None:
    """A disk that is full while a good checkpoint is being replaced; needs the right to mount."""
    mount = root / "small"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", mount], check=False).returncode:
        table.row("disk full while saving", "not measured: cannot mount", "", "", "the old loads")
        return
    try:
        verdicts = {}
        state, larger = make_state(20), make_state(90)
        for name, contender in peers.items():
            folder = mount / name
            folder.mkdir()
            contender.save(folder, 1, state)
            try:
                contender.save(folder, 2, larger)
                verdicts[name] = "it fits"
            except FAILURES:
                verdicts[name] = "the old loads" if _loads(contender, folder, state, larger) else "nothing loads"
            shutil.rmtree(folder)
        others = ", ".join(f"{name}: {verdict}" for name, verdict in verdicts.items() if name != "Holdfast")
        table.row("disk full while saving", verdicts["Holdfast"], others, "", "the old loads")
    finally:
        subprocess.run(["umount", mount], check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--folder", default=None, help="where to write; a disk with room for five states")
    parser.add_argument("--only", default="saving,loading,stalling,small,flipped,killed,full")
    parser.add_argument("--peers", default=",".join(contenders()), help="who takes part in the last three rows")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        root = Path(name)
        bench = Bench(root, given.mb, given.rounds)
        wanted = given.only.split(",")
        peers = {name: each for name, each in contenders().items() if name in ("Holdfast", *given.peers.split(","))}
        for part in ("saving", "loading", "stalling"):
            if part in wanted:
                getattr(bench, part)()
        if "small" in wanted:
            small(bench.table, root, given.rounds)
        if "flipped" in wanted:
            flipped(bench.table, root, peers)
        if "killed" in wanted:
            killed(bench.table, root, given.tries, peers)
        if "full" in wanted:
            full(bench.table, root, peers)


if __name__ == "__main__":
    main()
