"""Files of steps with the best one linked: the manager of `training.checkpoint_manager`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from holdfast.compat.codex_ml import files, payload, rng
from holdfast.errors import Refused
from holdfast.validation import check_count


class CheckpointManager:
    """Files `ckpt-N.pt`, of which the last `keep_last` and the best `best_k` stay.

    `best` links to the best one, `best_candidates/best-1.pt` and so on to the best `best_k`, and `best.json` has their
    metrics. Only a strictly better metric replaces the best; what is not a number is never best.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        save_steps: int | None = None,
        keep_last: int = 5,
        metric: str | None = None,
        mode: str = "min",
        keep_best: int | None = None,
        best_k: int | None = None,
    ) -> None:
        if mode not in ("min", "max"):
            raise Refused(f"mode is {mode!r}", hint="It is min or max.")
        self.root = files.make_folder(Path(root).expanduser())
        self.save_steps = int(save_steps) if save_steps else 0
        self.keep_last = int(keep_last)
        self.metric = metric
        self.mode = mode
        self.best_k = max(1, int(best_k if best_k is not None else keep_best if keep_best is not None else 1))
        files.make_folder(self.root / "best_candidates")

    @property
    def _best_records(self) -> list[dict[str, Any]]:
        """The best files that are there, the best first, as `best.json` has them."""
        told = files.read_json_or(self.root / "best.json", {})
        found = told.get("items", [told])
        return [each for each in (found if isinstance(found, list) else []) if self._is_record(each)]

    def _is_record(self, record: Any) -> bool:
        if not isinstance(record, dict) or not isinstance(record.get("path"), str) or "value" not in record:
            return False
        return (self.root / Path(record["path"]).name).is_file() and isinstance(record.get("step"), int)

    def save_now(
        self,
        step: int,
        payload: bytes,
        metrics: dict[str, float] | None = None,
        prefix: str = "ckpt",
        *,
        rng_state: dict[str, Any] | bool | None = None,
    ) -> Path:
        """Save bytes durably as the file of a step, move the links, and remove what is not kept; return the file."""
        path = self.root / f"{prefix}-{step}.pt"
        states = rng.capture() if rng_state is True else dict(rng_state) if isinstance(rng_state, dict) else None
        with files.locked(self.root):
            if metrics or states:
                told = {"step": int(step), "metrics": metrics or {}, "rng": states}
                files.write_json(path.with_suffix(".meta.json"), told)
            files.write_bytes(path, payload)
            self._update_best(path, step, metrics or {})
            self._prune(prefix)
        return path

    def maybe_save(
        self,
        step: int,
        payload: bytes,
        metrics: dict[str, float] | None,
        save_steps: int,
        prefix: str = "ckpt",
        *,
        rng_state: dict[str, Any] | bool | None = None,
    ) -> Path | None:
        """Save if the step is a multiple of `save_steps`; return the file, or None."""
        if check_count(save_steps, "save_steps") and step % save_steps == 0:
            return self.save_now(step, payload, metrics, prefix, rng_state=rng_state)
        return None

    @staticmethod
    def find_resume(root: str | os.PathLike[str]) -> str | None:
        """Return the file of the greatest step; None if there is none."""
        found = [path for prefix in ("ckpt-", "step-") for path in _steps(Path(root).expanduser(), prefix)]
        return str(max(found, key=_step_of)) if found else None

    def _update_best(self, path: Path, step: int, metrics: dict[str, float]) -> None:
        if self.metric is None or self.metric not in metrics or not files.is_number(metrics[self.metric]):
            return
        record = {"step": int(step), "value": float(metrics[self.metric]), "path": path.name}
        others = [each for each in self._best_records if each["path"] != path.name]
        order = sorted([*others, record], key=lambda each: (*files.rank(each["value"], self.mode), each["step"]))
        kept = order[: self.best_k]
        for place, each in enumerate(kept, start=1):
            files.link(f"../{each['path']}", self.root / "best_candidates" / f"best-{place}.pt")
        for link in (self.root / "best_candidates").iterdir():
            if link.is_symlink() and link.name not in {f"best-{place}.pt" for place in range(1, len(kept) + 1)}:
                files.remove(link)
        files.link(kept[0]["path"], self.root / "best")
        files.write_json(self.root / "best.json", kept[0] | {"metric": self.metric, "items": kept})

    def _prune(self, prefix: str) -> None:
        if self.keep_last <= 0:
            return
        protected = {each["path"] for each in self._best_records}
        for path in sorted(_steps(self.root, f"{prefix}-"), key=_step_of)[: -self.keep_last]:
            if path.name not in protected:
                files.remove(path)
                files.remove(path.with_suffix(".meta.json"))

    def callback(self) -> Any:
        """Return a callback for the Trainer of Hugging Face that saves every `save_steps` steps."""
        if not self.save_steps:
            raise RuntimeError("save_steps must be set to use callback()")
        from transformers import TrainerCallback  # an optional package, only for this

        manager = self

        class _Callback(TrainerCallback):  # type: ignore[misc]  # without types
            def __init__(self) -> None:
                self.objects: dict[str, Any] = {}
                self.logs: dict[str, float] = {}

            def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
                names = ("model", "optimizer", "lr_scheduler", "scaler")
                self.objects = {name: kwargs.get(name) for name in names}
                if self.objects["model"] is None or self.objects["optimizer"] is None:
                    raise RuntimeError("model and optimizer are required for checkpointing")
                return control

            def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> Any:
                self.logs = dict(logs or {})
                return control

            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
                step = state.global_step
                if step and step % manager.save_steps == 0:
                    if not self.objects:
                        raise RuntimeError("Checkpoint callback missing model/optimizer; on_train_begin not called")
                    saved = build_payload_bytes(*self.objects.values(), rng_state=True)
                    manager.save_now(step, saved, self.logs, prefix="step")
                return control

        return _Callback()


def build_payload_bytes(
    model: Any, optimizer: Any = None, scheduler: Any = None, scaler: Any = None, *, rng_state: bool = False
) -> bytes:
    """Return a training state as `torch.save` writes it."""
    if not payload.has_torch():
        raise RuntimeError("torch is required to build checkpoint payloads")
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    state: dict[str, Any] = {name: each.state_dict() if each is not None else None for name, each in parts.items()}
    if scaler is not None:
        state["scaler"] = scaler.state_dict()
    if rng_state:
        state["rng"] = rng.capture()
    return payload.dumps(state, use_torch=True)


def _steps(root: Path, prefix: str) -> list[Path]:
    """Return the files of steps; files with other names, such as `ckpt-final.pt`, are none."""
    return [path for path in root.glob(f"{prefix}*.pt") if files.number_of(path.with_suffix(""), prefix) is not None]


def _step_of(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])
