"""codex_ml's guide "Checkpointing Surfaces": its modules, contracts, snippets, deprecations and testing guidance."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast import durable
from holdfast.errors import Damaged, HoldfastError, Refused
from holdfast.testing.faulty_disks import FailingDisk
from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint

RUN = "runs/exp1/checkpoints"


def _save(step: int, loss: float | None = None, **more: Any) -> dict[str, Any]:
    metrics = None if loss is None else {"val_loss": loss}
    key = None if loss is None else "val_loss"
    return save_checkpoint(RUN, step, {"w": np.full(4, step)}, metrics=metrics, best_key=key, **more)


MODULES = [
    pytest.param(("holdfast.compat.codex_ml.cli.checkpoint",), marks=pytest.mark.slow),  # imports torch, if installed
    ("holdfast", "training"),
]


def _info(place: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-m", *words]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)


class TestOverview:
    @pytest.mark.parametrize(
        ("module", "name"),
        [
            ("codex_ml.utils.checkpoint_core", "verify_checkpoint"),  # low-level IO, integrity helpers
            ("codex_ml.utils.checkpointing", "save_checkpoint"),  # high-level API
            ("codex_ml.training.checkpointing", "save_checkpoint"),  # trainer-facing utilities
            ("codex_ml.training.checkpoint_manager", "CheckpointManager"),  # retention policy, metadata continuity
            ("codex_ml.utils.checkpoint", "save_checkpoint"),  # legacy-compatible
        ],
    )
    @pytest.mark.slow  # as below
    def test_surfaces(self, module: str, name: str, old: Callable[[str], Any]) -> None:
        assert callable(getattr(old(module), name))

    @pytest.mark.slow  # imports torch, where it is installed
    def test_low_level_integrity_helpers(self, old: Callable[[str], Any]) -> None:
        core = old("codex_ml.utils.checkpoint_core")
        path, meta = core.save_checkpoint("run", {"a": 1})
        assert core.verify_checkpoint(path).sha256 == meta.sha256

    def test_retention(self) -> None:
        manager = CheckpointManager(RUN, keep_last=2, keep_best=0)
        for step in range(1, 5):
            manager.save(step, {"step": step})
        assert [each.step for each in manager.history()] == [3, 4]

    def test_metadata_continuity(self) -> None:
        manager = CheckpointManager(RUN, keep_last=1)
        for step in range(1, 4):
            manager.save(step, {"step": step}, metadata={"note": step})
        again = CheckpointManager(RUN)
        assert [(each.step, each.sequence, each.metadata) for each in again.history()] == [(3, 3, {"note": 3})]


class TestBehaviorContracts:
    def test_schema_version_is_consistent(self) -> None:
        """Across canonical writers/readers."""
        made = [_save(1, 0.5)["schema_version"], CheckpointManager(RUN).save(2, {"x": 1})["schema_version"]]
        stored = [json.loads(path.read_text())["schema_version"] for path in Path(RUN).glob("step-*/manifest.json")]
        stored += [json.loads(Path(RUN, "best.json").read_text())["schema_version"]]
        assert len({*made, *stored}) == 1

    @pytest.mark.slow  # imports torch, where it is installed
    def test_schema_version_of_the_old_writers(self, old: Callable[[str], Any]) -> None:
        """Each canonical writer of the table writes version 1, and each reader refuses another."""
        core, checkpointing = old("codex_ml.utils.checkpoint_core"), old("codex_ml.utils.checkpointing")
        core.save_checkpoint("core", {"a": 1}, metric_value=0.5, keep_last=2)
        checkpointing.CheckpointManager("epochs").save(1, metrics={"val_loss": 0.5})
        checkpointing.save_checkpoint(out_dir=RUN, step=1, state={}, metrics={"val_loss": 0.5}, best_key="val_loss")
        old("codex_ml.training.checkpoint_manager").CheckpointManager("steps", metric="loss").save_now(
            1, b"x", {"loss": 0.5}
        )
        found = {str(path): json.loads(path.read_text()) for path in Path().rglob("*.json")}
        versions = {name: told["schema_version"] for name, told in found.items() if "schema_version" in told}
        assert len(versions) >= 6 and {float(each) for each in versions.values()} == {1}

    @pytest.mark.slow  # as above
    @pytest.mark.parametrize("version", [1, "1.0", 2, "2.0", None])
    def test_known_schema_versions_are_read(self, version: object, old: Callable[[str], Any]) -> None:
        """All that the old writers have written for the same files."""
        manager = old("codex_ml.utils.checkpointing").CheckpointManager("epochs")
        meta = manager.save(1, metrics={"val_loss": 0.5}) / "meta.json"
        told = {key: value for key, value in json.loads(meta.read_text()).items() if key != "schema_version"}
        meta.write_text(json.dumps(told if version is None else told | {"schema_version": version}))
        assert manager.load_latest()["epoch"] == 1

    @pytest.mark.slow  # as above
    @pytest.mark.parametrize("version", ["3.0", 9])
    def test_another_schema_version_is_refused(self, version: object, old: Callable[[str], Any]) -> None:
        manager = old("codex_ml.utils.checkpointing").CheckpointManager("epochs")
        meta = manager.save(1, metrics={"val_loss": 0.5}) / "meta.json"
        meta.write_text(json.dumps(json.loads(meta.read_text()) | {"schema_version": version}))
        with pytest.warns(RuntimeWarning), pytest.raises(RuntimeError, match="schema_version"):
            manager.load_latest()
        manifest = Path(_save(1)["path"], "manifest.json")
        manifest.chmod(0o644)
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"schema_version": version}))
        with pytest.raises((Refused, Damaged), match="schema_version"):
            load_checkpoint(RUN, step="latest")

    def test_last_points_to_the_last_completed_step(self) -> None:
        for step in (1, 2, 3):
            _save(step)
            assert load_checkpoint(f"{RUN}/last")["w"].tolist() == [step] * 4

    @pytest.mark.parametrize("key", ["metric", "value", "path"])
    def test_best_json_has_metric_value_and_path(self, key: str) -> None:
        meta = _save(1, 0.5)
        best = json.loads(Path(RUN, "best.json").read_text())
        assert best[key] == {"metric": "val_loss", "value": 0.5, "path": Path(meta["path"]).name}[key]

    @pytest.mark.slow  # imports torch, where it is installed
    @pytest.mark.parametrize("metric", [None, "val_loss"])
    def test_markers_of_the_high_level_api(self, metric: str | None, old: Callable[[str], Any]) -> None:
        manager = old("codex_ml.utils.checkpointing").CheckpointManager("epochs", metric=metric)
        found = []
        for epoch, loss in enumerate((0.5, 0.5, 0.7, 0.4, float("nan"), 0.4), 1):
            folder = manager.save(epoch, metrics={"val_loss": loss})
            assert Path(Path("epochs/last").read_text()) == folder
            best = json.loads(Path("epochs/best.json").read_text())
            assert (best["metric"], Path(best["path"]).name) == ("val_loss", f"epoch-{best['epoch']}")
            found.append((best["epoch"], best["value"]))
        assert found == [(1, 0.5), (1, 0.5), (1, 0.5), (4, 0.4), (4, 0.4), (4, 0.4)]

    @pytest.mark.slow  # as above
    def test_marker_of_the_retention_policy(self, old: Callable[[str], Any]) -> None:
        manager = old("codex_ml.training.checkpoint_manager").CheckpointManager("steps", metric="val_loss")
        found = []
        for step, loss in enumerate((0.5, 0.5, 0.7, 0.4, float("nan"), 0.4), 1):
            manager.save_now(step, b"x", {"val_loss": loss})
            best = json.loads(Path("steps/best.json").read_text())
            assert (best["metric"], best["path"]) == ("val_loss", f"ckpt-{best['step']}.pt")
            found.append((best["step"], best["value"]))
        assert found == [(1, 0.5), (1, 0.5), (1, 0.5), (4, 0.4), (4, 0.4), (4, 0.4)]

    def test_checksums_manifest_alongside_weights(self) -> None:
        folder = Path(_save(1)["path"])
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["digest_algorithm"] and list(folder.rglob("*.safetensors"))

    def test_a_changed_byte_is_noticed(self) -> None:
        folder = Path(_save(1)["path"])
        [weights] = folder.rglob("*.safetensors")
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.chmod(0o644)
        weights.write_bytes(data)
        with pytest.raises(Damaged):
            load_checkpoint(folder)

    def test_writes_are_atomic(self) -> None:
        """No partial states: whichever write fails, the markers name whole checkpoints."""
        at = 0
        while True:
            at += 1
            run = f"run-{at}"
            save_checkpoint(run, 1, {"w": np.ones(4)}, metrics={"val_loss": 2.0}, best_key="val_loss")
            disk = FailingDisk(at=at, once=False)
            with durable.use_disk(disk), contextlib.suppress(HoldfastError, OSError):
                save_checkpoint(run, 2, {"w": np.ones(4)}, metrics={"val_loss": 1.0}, best_key="val_loss")
            for marker in ("last", "best.json"):
                assert load_checkpoint(f"{run}/{marker}")["w"].tolist() == [1, 1, 1, 1]
            if disk.failed is None:
                break
        assert at > 5


class TestSnippets:
    def test_python(self) -> None:
        model_state, opt_state = {"weight": np.ones((2, 2))}, {"state": {0: np.zeros(2)}, "param_groups": [{"lr": 0.1}]}

        meta = save_checkpoint(
            out_dir="runs/exp1/checkpoints",
            step=1200,
            state={"model": model_state, "optimizer": opt_state},
            metrics={"val_loss": 1.23},
            best_key="val_loss",
            keep_last_k=3,
        )
        state = load_checkpoint(meta["path"], weights_only=True)

        assert state["model"]["weight"].tolist() == [[1, 1], [1, 1]]
        assert state["optimizer"]["param_groups"] == [{"lr": 0.1}]

    @pytest.mark.slow  # imports torch, where it is installed
    def test_python_under_the_old_name(self, old: Callable[[str], Any]) -> None:
        checkpointing = old("codex_ml.utils.checkpointing")
        meta = checkpointing.save_checkpoint(
            out_dir="runs/exp1/checkpoints",
            step=1200,
            state={"model": {"weight": np.ones(2)}, "optimizer": {"lr": 0.1}},
            metrics={"val_loss": 1.23},
            best_key="val_loss",
            keep_last_k=3,
        )
        state = checkpointing.load_checkpoint(meta["path"], weights_only=True)
        assert (state["model"]["weight"].tolist(), state["optimizer"]) == ([1, 1], {"lr": 0.1})

    def test_keep_last_k(self) -> None:
        for step in range(1, 6):
            _save(step, float(-step), keep_last_k=3)
        assert [each.step for each in CheckpointManager(RUN).history()] == [3, 4, 5]

    @pytest.mark.parametrize("module", MODULES)
    @pytest.mark.parametrize("place", [".", RUN, "runs"])
    def test_cli(self, module: tuple[str, ...], place: str) -> None:
        """`python -m codex_ml.cli.checkpoint --info latest`, where the Python snippet ran, or in the run's folder."""
        _save(6, 2.0)
        _save(7, 1.0)
        done = _info(place, *module, "--info", "latest")
        assert done.returncode == 0 and done.stderr == ""
        shown = dict(line.replace(":", " ", 1).split(None, 1) for line in done.stdout.splitlines())
        assert (shown["step"], Path(shown["path"])) == ("7", Path(RUN, "step-00000007").resolve())

    @pytest.mark.parametrize("module", [*MODULES, ("holdfast.cli", "training")])
    def test_cli_as_json(self, module: tuple[str, ...]) -> None:
        _save(7, 1.0)
        told = json.loads(_info(".", *module, "--info", "latest", "--dir", RUN, "--json").stdout)
        assert told.get("checkpoint", told)["step"] == 7

    @pytest.mark.parametrize("module", MODULES)
    def test_cli_chooses_no_run(self, module: tuple[str, ...]) -> None:
        """With two runs below, it names them; with none, it says so."""
        assert "no checkpoint latest" in _info(".", *module, "--info", "latest").stderr
        save_checkpoint("runs/a", 1, {})
        save_checkpoint("runs/b", 1, {})
        done = _info(".", *module, "--info", "latest")
        assert done.returncode and all(each in done.stderr for each in ("runs/a", "runs/b"))


class TestDeprecation:
    @pytest.mark.parametrize(
        ("legacy", "name"),
        [
            ("utils.checkpoint", "save_checkpoint"),
            ("utils.checkpointing", "save_checkpoint"),
            ("training.checkpoint", "CheckpointManager"),
        ],
    )
    @pytest.mark.slow  # as above
    def test_legacy_imports_warn_and_say_what_to_use_instead(self, legacy: str, name: str) -> None:
        script = f"from holdfast.compat.codex_ml.{legacy} import {name}"
        command = [sys.executable, "-W", "error::DeprecationWarning", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode and "DeprecationWarning" in done.stderr and "use holdfast.training" in done.stderr

    @pytest.mark.slow  # imports torch, where it is installed
    def test_legacy_imports_preserve_behavior(self, old: Callable[[str], Any]) -> None:
        legacy, canonical = old("codex_ml.training.checkpoint"), old("codex_ml.training.checkpoint_manager")
        assert legacy.CheckpointManager is canonical.CheckpointManager

    def test_canonical_imports_do_not_warn(self) -> None:
        script = "from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint"
        subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


class TestTestingGuidance:
    def test_best_json_updates_only_on_strict_improvement(self) -> None:
        found = []
        for step, loss in enumerate((0.5, 0.5, 0.7, 0.4, 0.4), 1):
            _save(step, loss)
            found.append(json.loads(Path(RUN, "best.json").read_text())["step"])
        assert found == [1, 1, 1, 4, 4]

    def test_nan_is_no_improvement(self) -> None:
        _save(1, float("nan"))
        _save(2, 0.5)
        _save(3, float("nan"))
        assert json.loads(Path(RUN, "best.json").read_text())["step"] == 2

    def test_last_is_the_most_recent_completed_one(self) -> None:
        """A save that fails moves no marker."""
        _save(1)
        with pytest.raises(Exception, match="cannot be saved"):
            save_checkpoint(RUN, 2, {"x": object()})
        assert load_checkpoint(f"{RUN}/last")["w"].tolist() == [1] * 4
        _save(3)
        assert load_checkpoint(f"{RUN}/last")["w"].tolist() == [3] * 4


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_save_returned_can_be_loaded(tmp_path: Path) -> None:
    from holdfast.compat.codex_ml.utils import checkpointing

    meta = save_checkpoint(tmp_path / "run", 3, {"epoch": 3})
    assert load_checkpoint(meta) == {"epoch": 3}
    assert checkpointing.load_checkpoint(meta) == {"epoch": 3}
    with pytest.raises(Refused, match="without a path"):
        load_checkpoint({"step": 3})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_returned_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.compat.codex_ml.checkpointing.checkpoint_core import load_checkpoint, save_checkpoint

    monkeypatch.setenv("HOME", str(tmp_path))
    place = save_checkpoint("~/ck", state={"n": 1}, meta={})
    assert place == str(tmp_path / "ck")
    assert load_checkpoint(place)[0] == {"n": 1}
