"""`CheckpointManager`: checkpoints of a loop, from its first step to the one after a preemption."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from holdfast.errors import Damaged, HoldfastError, NotFound, Refused, Unavailable
from holdfast.model import VerifyReport
from holdfast.training import background, checking, retaining
from holdfast.training.checkpoints import run_of, save_state, set_back
from holdfast.training.folder import Found, TrainingFolder, pass_over
from holdfast.training.loading import Opened
from holdfast.training.metrics import check_metrics
from holdfast.training.preemption import Preemption
from holdfast.training.stored.layout import check_step

_log = logging.getLogger("holdfast")


@dataclass(frozen=True, slots=True)
class TrainingCheckpoint:
    """What there is to say of a checkpoint, without its state."""

    step: int
    path: str
    sequence: int
    timestamp: datetime
    metrics: dict[str, float]
    metadata: dict[str, Any]
    environment: dict[str, Any]
    config_hash: str | None
    n_bytes: int
    n_tensors: int
    pinned: bool


@dataclass(frozen=True, slots=True)
class Resumed:
    """A state to go on from."""

    state: Any
    checkpoint: TrainingCheckpoint
    problems: tuple[str, ...]
    """What was damaged and passed over, or could not be restored."""

    @property
    def step(self) -> int:
        return self.checkpoint.step


class CheckpointManager:
    """Saves every so many steps, keeps what is wanted, and finds what to go on from.

    As a context manager it also answers SIGTERM: the next `maybe_save` saves, whatever its step, and ends the process
    as the signal would have. Leaving the block waits for a save in the background, and passes a signal on that neither
    `maybe_save` nor `should_stop` has told of.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        save_steps: int | None = None,
        keep_last: int | None = 5,
        keep_best: int | None = 1,
        keep_every: int | None = None,
        best_key: str | None = None,
        mode: Literal["min", "max"] = "min",
        block: bool = True,
        rng: bool = True,
        loader: Any = None,
        config: Any = None,
        gate: Any = None,
        adopt: bool = False,
    ) -> None:
        if save_steps is not None and check_step(save_steps) == 0:
            raise Refused("save_steps is 0", hint="Give 1 or more, or None to save only when told.")
        check_metrics(None, None, mode)
        self._folder = run_of(root)
        self._save_steps = save_steps
        self._keep = retaining.Keep(keep_last, keep_best, keep_every)
        self._best_key = best_key
        self._mode: Literal["min", "max"] = mode
        self._options: dict[str, Any] = {"rng": rng, "loader": loader, "config": config, "adopt": adopt}
        self._block = block
        self._gate = gate
        self._rewinds = False
        self._preemption = Preemption()

    @property
    def root(self) -> Path:
        """The folder of the checkpoints."""
        return self._folder.path

    @property
    def should_stop(self) -> bool:
        """Whether SIGTERM has come. Who is told so ends the loop, and decides when the process ends."""
        return self._preemption.tell()

    # saving

    def maybe_save(
        self, step: int, state: Any | Callable[[], Any], metrics: Mapping[str, float] | None = None, **options: Any
    ) -> dict[str, Any] | None:
        """Save if it is time: every `save_steps` steps, or because SIGTERM has come. None if it is not.

        state: the state, or a function that makes it, which is called only if it is time.
        """
        if self.should_stop:
            meta = None
            try:
                self.wait()
            except Exception as error:  # of a save before this one, which there may be no more time for
                _log.error("an earlier save failed: %s", error)
            if not self._has_saved(step):  # by the call before this one, as it may be
                meta = self.save(step, state, metrics, **options | {"block": True})
            self._preemption.end()
            return meta
        if not self._save_steps or check_step(step) % self._save_steps:
            return None
        return self.save(step, state, metrics, **options)

    def save(
        self, step: int, state: Any | Callable[[], Any], metrics: Mapping[str, float] | None = None, **options: Any
    ) -> dict[str, Any]:
        """Save now; `options` are those of `save_checkpoint`. Without the metric that decides, it is not the best."""
        wishes: dict[str, Any] = {
            "metrics": metrics, "best_key": self._best_key, "needs_best": False, "mode": self._mode,
            "keep_last_k": self._keep.last, "keep_best_k": self._keep.best,
            "keep_every": self._keep.every, "rewind": self._rewinds,
            "block": self._block, "gate": self._gate, **self._options,
        }  # fmt: skip
        made = state() if callable(state) else state
        return save_state(str(self.root), step, made, **wishes | options)

    def _has_saved(self, step: int) -> bool:
        return any(each.step == check_step(step) for each in self._folder.look()[0]) and not self._rewinds

    def wait(self) -> dict[str, Any] | None:
        """Wait for a save in the background; raises its error."""
        return background.wait_for_save()

    # finding

    def history(self) -> list[TrainingCheckpoint]:
        """All checkpoints, in the order in which they were saved; what is broken is logged and left out."""
        found, broken = self._folder.look()
        pass_over(broken)
        pinned = self._folder.pinned()
        return [_noun(each, pinned) for each in found]

    def latest(self) -> TrainingCheckpoint | None:
        """The newest checkpoint that is whole; None if there is none. Its bytes are not read."""
        found = self.history()
        return found[-1] if found else None

    def best(self) -> TrainingCheckpoint | None:
        """The best checkpoint; None if there is none."""
        found, _ = self._folder.look()
        if self._best_key is not None:
            best = self._folder.best_of(found, self._best_key, self._mode)
            return _noun(best, self._folder.pinned()) if best else None
        try:
            return _noun(self._folder.get("best"), self._folder.pinned())
        except NotFound:
            return None

    def verify(self) -> VerifyReport:
        """Read every byte of every checkpoint, and name what is damaged."""
        if isinstance(self._folder, TrainingFolder):
            return checking.verify(*self._folder.look())
        from holdfast.training.remote_reading import verify_remote  # an extra: `holdfast[s3]`

        return verify_remote(self._folder)

    def resume(
        self, step: int | Literal["latest", "best"] = "latest", *, rng: bool = True, **options: Any
    ) -> Resumed | None:
        """Load what to go on from; None if nothing was saved yet. `options` are those of `load_checkpoint`.

        `latest`: a checkpoint that is damaged is reported, put aside, and the newest sound one is used instead.
        Random states and the data loader's position are set back. Damaged if none is sound.
        """
        background.wait_for_save()
        found, broken = self._folder.look()
        if not found and not broken:
            return None
        if step != "latest":
            self._rewinds = True
            return self._resumed(self._folder.get(step), (), rng, options)
        problems = [str(each.error) for each in broken]
        for each in reversed(found):
            try:
                resumed = self._resumed(each, tuple(problems), rng, options)
            except (Damaged, NotFound) as error:
                if self._folder.reader(each, verify=False).is_gone:
                    return self.resume(step, rng=rng, **options)  # another process has pruned it: look again
                if isinstance(error, NotFound):
                    raise  # of what was asked for
                _log.warning("passed over: %s", error)
                problems.append(str(error))
                continue
            self._put_aside(found[found.index(each) + 1 :])
            if any(other.step > each.step for other in found):
                self._rewinds = True  # the run was set back, and comes to steps again that it left
            return resumed
        raise Damaged(f"no checkpoint of {self.root} is sound: {problems[0]}", hint="Restore a backup of the folder.")

    def _resumed(self, found: Found, problems: tuple[str, ...], rng: bool, options: dict[str, Any]) -> Resumed:
        opening = {name: value for name, value in options.items() if name in ("verify", "mmap")}
        whole = self._folder.full(found)
        reader = self._folder.reader(whole, verify=options.get("verify", True))
        opened = Opened(whole, **opening, reader=reader)
        state = opened.state(**{name: value for name, value in options.items() if name not in opening})
        loader = self._options["loader"]
        kept = opened.resume()
        notes = set_back(opened, rng=rng and "rng" in kept, loader=loader if "loader" in kept else None)
        if rng and self._options["rng"] and "rng" not in kept:
            notes.append(f"{found.path} holds no random states, so none are restored")
        if loader is not None and "loader" not in kept:
            notes.append(f"{found.path} holds no position of a data loader, so it begins anew")
        return Resumed(state, _noun(found, self._folder.pinned()), (*problems, *notes))

    def _put_aside(self, damaged: list[Found]) -> None:
        """What is damaged keeps its bytes and loses its name, so that its step can be saved again."""
        if not damaged:
            return
        self._rewinds = True
        try:
            with self._folder.writing():
                known = {(each.path, each.manifest.sequence) for each in damaged}
                found = self._folder.look()[0]  # somebody may have put a sound one there meanwhile
                doomed = [each for each in found if (each.path, each.manifest.sequence) in known]
                self._folder.mark_rest([each for each in found if each not in doomed])
                for each in doomed:
                    _log.warning("put aside: %s", self._folder.put_aside(each.path))
        except (Unavailable, Refused) as error:  # a folder that can only be read is still good to go on from
            _log.warning("what is damaged stays where it is: %s", error)

    # keeping

    def pin(self, step: int, *, pinned: bool = True) -> None:
        """Keep a checkpoint whatever the policy says; or no longer."""
        with self._folder.writing():  # nobody prunes it between the look and the pin
            found = self._folder.get(check_step(step))
            steps = self._folder.pinned()
            self._folder.pin(steps | {found.step} if pinned else steps - {found.step})
            self._folder.get(found.step)  # an object store has no lock: NotFound if it was pruned meanwhile

    def prune(self, *, dry_run: bool = False) -> retaining.Trimmed:
        """Remove what the policy has no reason to keep, or only say what that is."""
        background.wait_for_save()
        found, _ = self._folder.look()
        options: dict[str, Any] = {"best_key": self._best_key, "mode": self._mode, "now": datetime.now(UTC)}
        if dry_run:
            return retaining.plan(self._folder, found, self._keep, **options)
        with self._folder.writing():
            found, _ = self._folder.look()
            return retaining.prune(self._folder, found, self._keep, **options)

    # the block

    def __enter__(self) -> CheckpointManager:
        self._preemption.listen()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        is_over = False
        try:
            with _told_beside(value):
                background.wait_for_save()  # a signal that comes meanwhile does not cost the last save
            is_over = value is None
        finally:
            self._preemption.leave(is_over=is_over)  # a save that failed is told of, and not ended by the signal


@contextlib.contextmanager
def _told_beside(other: BaseException | None) -> Iterator[None]:
    """An error of the save must not hide the one that ended the block."""
    try:
        yield
    except HoldfastError as error:
        if other is None:
            raise
        other.add_note(f"the save in the background failed too: {error}")


def _noun(found: Found, pinned: set[int]) -> TrainingCheckpoint:
    manifest = found.manifest
    metrics = {name: manifest.metric(name) for name in manifest.metrics}
    return TrainingCheckpoint(
        step=manifest.step, path=str(found.path), sequence=manifest.sequence, timestamp=manifest.timestamp,
        metrics={name: value for name, value in metrics.items() if value is not None}, metadata=manifest.metadata,
        environment=manifest.environment, config_hash=manifest.config_hash, n_bytes=manifest.total_bytes,
        n_tensors=manifest.n_tensors, pinned=manifest.step in pinned,
    )  # fmt: skip
