"""`CheckpointManager`: the checkpoints of a training loop, from its first step to the restart after a preemption."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal

from holdfast.errors import Damaged, HoldfastError, NotFound, Refused, Unavailable
from holdfast.model import VerifyReport
from holdfast.training import background, retention
from holdfast.training.checkpoints import open_run, save_requested
from holdfast.training.load import LoadRequest, OpenCheckpoint
from holdfast.training.metrics import check_metrics
from holdfast.training.preemption import Preemption
from holdfast.training.run_store import StoredCheckpoint, best_of, log_skipped
from holdfast.training.save import SaveOptions
from holdfast.training.stored.layout import check_step
from holdfast.validation import check_known, checked_options

_log = logging.getLogger("holdfast")
_SAVE_OPTIONS = frozenset(SaveOptions.__slots__) - {"metrics", "needs_best"}


@dataclass(frozen=True, slots=True)
class TrainingCheckpoint:
    """A checkpoint without its state."""

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
    """A state to continue from."""

    state: Any
    checkpoint: TrainingCheckpoint
    problems: tuple[str, ...]
    """Damaged checkpoints that were skipped, and what could not be restored (P4)."""

    @property
    def step(self) -> int:
        """The step that was saved; the run goes on with the next."""
        return self.checkpoint.step


@checked_options
class CheckpointManager:
    """Saves every `save_steps` steps, prunes by the policy, and finds the checkpoint to continue from.

    As a context manager it also handles SIGTERM: the next `maybe_save` saves, whatever its step, and then lets the
    signal end the process. Leaving the block waits for a save in the background, and re-raises a signal that neither
    `maybe_save` nor `should_stop` has reported.
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
        if save_steps is not None:
            _check_steps(save_steps)
        check_metrics(None, None, mode)
        self._store = open_run(root)
        self._save_steps = save_steps
        self._request = SaveOptions(
            keep_last_k=keep_last, keep_best_k=keep_best, keep_every=keep_every, best_key=best_key, mode=mode,
            block=block, rng=rng, loader=loader, config=config, gate=gate, adopt=adopt, needs_best=False,
        )  # fmt: skip
        _ = self._request.keep  # Refused if it is invalid
        self._rewinds = False
        self._preemption = Preemption()

    @property
    def root(self) -> Any:
        """The folder, or the URL, of the checkpoints."""
        return self._store.path

    @property
    def should_stop(self) -> bool:
        """Whether SIGTERM was received. A caller that reads True ends the loop, and decides when the process ends."""
        return self._preemption.tell()

    # saving

    def maybe_save(
        self,
        step: int,
        state: Any | Callable[[], Any],
        metrics: Mapping[str, float] | None = None,
        *,
        save_steps: int | None = None,
        **options: Any,
    ) -> dict[str, Any] | None:
        """Save if it is time: every `save_steps` steps (by default those of the manager), or after SIGTERM.

        Return None if it is not. state: the state, or a function that returns it, which is called only if it is time.
        `options` are those of `save_checkpoint`.
        """
        check_known(options, _SAVE_OPTIONS, "maybe_save")
        every = self._save_steps if save_steps is None else _check_steps(save_steps)
        if self.should_stop:
            meta = None
            try:
                self.wait()
            except Exception as error:  # of the previous save: this one may be the last chance to save anything
                _log.error("an earlier save failed: %s", error)
            if not self._has_saved(step):  # the previous call may have saved it
                meta = self.save(step, state, metrics, **options | {"block": True})
            self._preemption.end()
            return meta
        if not every or check_step(step) % every:
            return None
        return self.save(step, state, metrics, **options)

    def save(
        self, step: int, state: Any | Callable[[], Any], metrics: Mapping[str, float] | None = None, **options: Any
    ) -> dict[str, Any]:
        """Save now; `options` are those of `save_checkpoint`. Without its metric, it cannot be the best checkpoint."""
        check_known(options, _SAVE_OPTIONS, "save")
        request = replace(self._request, **{"metrics": metrics, "rewind": self._rewinds, **options})
        return save_requested(str(self.root), step, state() if callable(state) else state, request)

    def _has_saved(self, step: int) -> bool:
        return any(each.step == check_step(step) for each in self._store.scan()[0]) and not self._rewinds

    def wait(self) -> dict[str, Any] | None:
        """Wait for a save in the background, and raise its error."""
        return background.wait_for_save()

    # finding

    def history(self) -> list[TrainingCheckpoint]:
        """Return all checkpoints, in the order in which they were saved. Unreadable ones are logged and left out."""
        found, broken = self._store.scan()
        log_skipped(broken)
        pinned = self._store.pinned()
        return [_checkpoint(each, pinned) for each in found]

    def latest(self) -> TrainingCheckpoint | None:
        """Return the newest checkpoint with a sound manifest; None if there is none. Its tensors are not read."""
        found = self.history()
        return found[-1] if found else None

    def best(self) -> TrainingCheckpoint | None:
        """Return the best checkpoint; None if there is none."""
        if self._request.best_key is not None:
            best = best_of(self._store.scan()[0], self._request.best_key, self._request.mode)
            return _checkpoint(best, self._store.pinned()) if best else None
        try:
            return _checkpoint(self._store.get("best"), self._store.pinned())
        except NotFound:
            return None

    def verify(self) -> VerifyReport:
        """Read every byte of every checkpoint, and name what is damaged."""
        return self._store.verify()

    def resume(
        self,
        step: int | Literal["latest", "best"] | TrainingCheckpoint = "latest",
        *,
        rng: bool = True,
        **options: Any,
    ) -> Resumed | None:
        """Load the checkpoint to continue from, by its step or itself; None if there is none.

        `options` are those of `load_checkpoint`: `weights_only`, `map_location`, `mmap`, `only`, `verify`, `like`.

        With `latest`, a damaged checkpoint is reported and renamed (P1), and the newest sound one is used instead.
        Random states and the position of the data loader are restored. Damaged if no checkpoint is sound.
        """
        check_known(options, LoadRequest.__slots__, "resume")
        background.wait_for_save()
        request = LoadRequest(**options)
        step = step.step if isinstance(step, TrainingCheckpoint) else step
        found, broken = self._store.scan()
        if not found and not broken:
            return None
        if step != "latest":
            self._rewinds = True
            return self._load(self._store.get(step), (), rng, request)
        problems = [str(each.error) for each in broken]
        for each in reversed(found):
            try:
                resumed = self._load(each, tuple(problems), rng, request)
            except (Damaged, NotFound) as error:
                if self._store.reader(each, verify=False).is_gone:
                    return self.resume(step, rng=rng, **options)  # another process has pruned it: scan again (P9)
                if isinstance(error, NotFound):
                    raise  # of the names in `only`
                _log.warning("skipped: %s", error)
                problems.append(str(error))
                continue
            self._set_aside(found[found.index(each) + 1 :])
            if any(other.step > each.step for other in found):
                self._rewinds = True  # the run goes back, and will save these steps again
            return resumed
        raise Damaged(f"no checkpoint of {self.root} is intact: {problems[0]}", hint="Restore a backup of the folder.")

    def _load(self, found: StoredCheckpoint, problems: tuple[str, ...], rng: bool, request: LoadRequest) -> Resumed:
        whole = self._store.full(found)
        opened = OpenCheckpoint(whole, self._store.reader(whole, verify=request.verify))
        state = opened.state(request)
        loader, stored = self._request.loader, opened.resume()
        notes = opened.restore(rng=rng and "rng" in stored, loader=loader if "loader" in stored else None)
        if rng and self._request.rng and "rng" not in stored:
            notes.append(f"{found.path} has no random states, so none are restored")
        if loader is not None and "loader" not in stored:
            notes.append(f"{found.path} has no position of a data loader, so it starts from the beginning")
        return Resumed(state, _checkpoint(found, self._store.pinned()), (*problems, *notes))

    def _set_aside(self, damaged: list[StoredCheckpoint]) -> None:
        """Rename damaged checkpoints, so that their steps can be saved again. Nothing is removed (P1)."""
        if not damaged:
            return
        self._rewinds = True
        try:
            with self._store.writing():
                known = {(each.path, each.manifest.sequence) for each in damaged}
                found = self._store.scan()[0]  # another process may have saved a sound one there meanwhile
                doomed = [each for each in found if (each.path, each.manifest.sequence) in known]
                self._store.repoint_markers([each for each in found if each not in doomed])
                for each in doomed:
                    _log.warning("damaged checkpoint renamed to %s", self._store.set_aside(each.path))
        except (Unavailable, Refused) as error:  # a read-only folder can still be resumed from
            _log.warning("cannot rename damaged checkpoints: %s", error)

    # keeping

    def pin(self, step: int | TrainingCheckpoint, *, pinned: bool = True) -> None:
        """Keep a checkpoint, given by its step or itself, whatever the policy says, or no longer."""
        step = step.step if isinstance(step, TrainingCheckpoint) else step
        with self._store.writing():  # no prune may come between finding and pinning it
            found = self._store.get(check_step(step))
            steps = self._store.pinned()
            self._store.pin(steps | {found.step} if pinned else steps - {found.step})
            self._store.get(found.step)  # an object store has no lock: NotFound if it was pruned meanwhile

    def prune(self, *, dry_run: bool = False) -> retention.PrunedSteps:
        """Remove what the policy does not keep, or with `dry_run` only return what that is."""
        background.wait_for_save()
        request = self._request
        options: dict[str, Any] = {"best_key": request.best_key, "mode": request.mode, "now": datetime.now(UTC)}
        if dry_run:
            return retention.plan(self._store, self._store.scan()[0], request.keep, **options)
        with self._store.writing():
            return retention.prune(self._store, self._store.scan()[0], request.keep, **options)

    # the block

    def __enter__(self) -> CheckpointManager:
        self._preemption.listen()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        is_over = False
        try:
            with _note_on(value):
                background.wait_for_save()  # before the signal is handled: it must not cost the last save
            is_over = value is None
        finally:
            self._preemption.leave(is_over=is_over)  # the error of a failed save is raised, not ended by the signal


def _check_steps(save_steps: int) -> int:
    if check_step(save_steps) == 0:
        raise Refused("save_steps is 0", hint="Give 1 or more, or None to save only with save().")
    return save_steps


@contextlib.contextmanager
def _note_on(other: BaseException | None) -> Iterator[None]:
    """Add an error of the save as a note to the one that ended the block, which it must not hide."""
    try:
        yield
    except HoldfastError as error:
        if other is None:
            raise
        other.add_note(f"the save in the background failed, too: {error}")


def _checkpoint(found: StoredCheckpoint, pinned: set[int]) -> TrainingCheckpoint:
    manifest = found.manifest
    metrics = {name: manifest.metric(name) for name in manifest.metrics}
    return TrainingCheckpoint(
        step=manifest.step, path=str(found.path), sequence=manifest.sequence, timestamp=manifest.timestamp,
        metrics={name: value for name, value in metrics.items() if value is not None}, metadata=manifest.metadata,
        environment=manifest.environment, config_hash=manifest.config_hash, n_bytes=manifest.total_bytes,
        n_tensors=manifest.n_tensors, pinned=manifest.step in pinned,
    )  # fmt: skip
