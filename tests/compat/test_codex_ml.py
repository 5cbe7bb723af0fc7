"""`holdfast.compat.codex_ml` without PyTorch's objects: its names, files and answers, without its defects."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import os
import pickle
import random
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.compat.codex_ml import files, payload
from holdfast.errors import Refused

from .names import names_of

core = names_of("codex_ml.utils.checkpoint_core")
checkpointing = names_of("codex_ml.utils.checkpointing")
steps = names_of("codex_ml.training.checkpoint_manager")


def names(folder: Path, pattern: str = "*") -> list[str]:
    return sorted(path.name for path in folder.glob(pattern) if not path.name.startswith("."))


class TestNames:
    @pytest.mark.parametrize(
        ("module", "found"),
        [
            ("utils.checkpoint_core", "save_checkpoint load_checkpoint load_best verify_checkpoint capture_rng_state"),
            ("utils.checkpoint_core", "restore_rng_state CheckpointMeta CheckpointIntegrityError SCHEMA_VERSION"),
            ("utils.checkpointing", "CheckpointManager CheckpointLoadError save_checkpoint load_checkpoint save_ckpt"),
            ("utils.checkpointing", "load_training_checkpoint verify_ckpt_integrity build_payload_bytes load_payload"),
            ("utils.checkpointing", "dump_rng_state load_rng_state set_seed ModuleStateDictProvider"),
            ("training.checkpointing", "RNGState snapshot_rng_state restore_rng_state save_checkpoint load_checkpoint"),
            ("training.checkpoint_manager", "CheckpointManager"),
            ("training.checkpoint", "CheckpointManager"),
            ("utils.checkpoint", "CheckpointManager save_checkpoint load_checkpoint"),
            ("utils.checkpoint_manager", "save_checkpoint load_checkpoint"),
            ("utils.checkpoint_retention", "RetainSpec retain"),
            ("utils.retention", "prune_checkpoints"),
            ("utils.storage", "FSSpecStorage StorageProvider"),
            ("utils.checkpoint_event", "maybe_emit_checkpoint_saved_event toggle_checkpoint_json_logging"),
            ("checkpointing.bestk", "update_and_prune"),
            ("checkpointing.best_k_retention", "CheckpointEntry CheckpointIndex prune_checkpoints"),
            ("checkpointing.best_k_retention", "save_checkpoint_with_retention"),
            ("checkpointing.atomic_io", "atomic_write_bytes file_sha256"),
            ("io.atomic", "atomic_write_json canonical_json_dumps"),
            ("cli.checkpoint", "main"),
            ("cli.checkpoint_validate", "main validate_checkpoint CheckpointValidationError"),
        ],
    )
    def test_import_paths(self, module: str, found: str) -> None:
        assert all(hasattr(names_of(f"codex_ml.{module}"), name) for name in found.split())

    @pytest.mark.parametrize(
        ("callable_", "signature"),
        [
            (
                core.save_checkpoint,
                "checkpoint_dir state=None payload=None metadata=None metric_value=None metric_key='val_loss' "
                "best_metric=None mode='min' top_k=3 best_k=None config=None prefix='ckpt' include_rng=True "
                "keep_last=None",
            ),
            (core.load_checkpoint, "path restore_rng=False map_location='cpu'"),
            (
                checkpointing.CheckpointManager,
                "root keep_last=5 keep_best=1 storage=None remote_prefix=None metric=None mode='min' best_k=None",
            ),
            (
                steps.CheckpointManager,
                "root save_steps=None keep_last=5 metric=None mode='min' keep_best=None best_k=None",
            ),
            (steps.CheckpointManager.save_now, "self step payload metrics=None prefix='ckpt' rng_state=None"),
            (steps.CheckpointManager.maybe_save, "self step payload metrics save_steps prefix='ckpt' rng_state=None"),
            (
                names_of("codex_ml.training.checkpointing").save_checkpoint,
                "model optimizer epoch val_metric out_dir mode='min' keep_best_k=3 extra=None manifest=None",
            ),
            (
                names_of("codex_ml.utils.retention").prune_checkpoints,
                "checkpoint_dir keep_last=None keep_every=None max_epochs=None dry_run=False",
            ),
        ],
    )
    def test_signatures(self, callable_: Any, signature: str) -> None:
        found = [
            each.name if each.default is each.empty else f"{each.name}={each.default!r}"
            for each in inspect.signature(callable_).parameters.values()
        ]
        assert " ".join(found) == signature

    def test_importing_changes_no_library(self) -> None:
        """codex_ml replaces `random.seed` and `torch.manual_seed`."""
        script = (
            "import random; seed = random.seed; import holdfast.compat.codex_ml.utils.checkpointing;"
            "assert random.seed == seed"
        )
        subprocess.run([sys.executable, "-c", script], check=True)


class TestCore:
    def test_round_trip(self, tmp_path: Path) -> None:
        state = {"model_state": {"w": [1, 2]}, "optimizer_state": {"beta": 0.9}}
        path, meta = core.save_checkpoint(
            tmp_path / "epoch-0", payload=state, metadata={"metrics": {"loss": 0.25}}, include_rng=False
        )
        assert path.exists() and path.name.startswith("ckpt-") and path.suffix == ".pt"
        loaded, told = core.load_checkpoint(tmp_path / "epoch-0")
        assert loaded == state and told.rng == {} and told.schema_version == core.SCHEMA_VERSION
        assert told.sha256 == meta.sha256 == files.sha256_of(path) == core.verify_checkpoint(path).sha256

    def test_answers_as_the_state_alone(self, tmp_path: Path) -> None:
        core.save_checkpoint(tmp_path, {"w": 1})
        loaded = core.load_checkpoint(tmp_path)
        assert loaded["w"] == 1 and "w" in loaded and loaded.get("none") is None and loaded.get("_rng")["python"]

    def test_values_come_back_exactly(self, tmp_path: Path) -> None:
        """codex_ml says "Checksum mismatch" for sets and for strided arrays."""
        np = pytest.importorskip("numpy")
        state = {
            "set": {"a", "b", "c"},
            "tuple": (1, "x"),
            "array": np.arange(12).reshape(3, 4)[:, ::2],
            "path": Path("/a"),
        }
        path, _ = core.save_checkpoint(tmp_path, state)
        loaded, _ = core.load_checkpoint(path)
        assert loaded["set"] == state["set"] and loaded["tuple"] == (1, "x") and loaded["path"] == Path("/a")
        assert np.array_equal(loaded["array"], state["array"])
        core.verify_checkpoint(path)

    @pytest.mark.parametrize("at", [0.0, 0.5, 1.0])
    def test_damage_is_found(self, tmp_path: Path, at: float) -> None:
        path, _ = core.save_checkpoint(tmp_path, {"x": "ok"}, metric_value=1.0)
        data = bytearray(path.read_bytes())
        data[min(int(len(data) * at), len(data) - 1)] ^= 0xFF
        path.write_bytes(data)
        for read in (core.verify_checkpoint, core.load_checkpoint):
            with pytest.raises(core.CheckpointIntegrityError, match="Checksum mismatch"):
                read(path)

    def test_best_k(self, tmp_path: Path) -> None:
        for number in range(5):
            core.save_checkpoint(tmp_path, {"epoch": number}, metric_value=1.0 - number / 10, top_k=3)
        assert len(names(tmp_path, "*.pt")) == 3
        state, meta, path = core.load_best(tmp_path)
        assert state == {"epoch": 4} and meta.metric_value == pytest.approx(0.6) and path.exists()
        assert len(names(tmp_path, "*.sha256")) == 3

    @pytest.mark.parametrize("value", [9.0, None, math.nan])
    def test_what_was_just_saved_stays(self, tmp_path: Path, value: float | None) -> None:
        """codex_ml may remove it before it returns its path."""
        for number in range(3):
            core.save_checkpoint(tmp_path, {"n": number}, metric_value=number / 10, top_k=1)
        path, _ = core.save_checkpoint(tmp_path, {"n": 9}, metric_value=value, top_k=1)
        assert core.load_checkpoint(path)[0] == {"n": 9} and core.load_best(tmp_path)[0] == {"n": 0}

    def test_mode_max(self, tmp_path: Path) -> None:
        for value in (0.1, 0.9, 0.5):
            core.save_checkpoint(tmp_path, {"v": value}, metric_value=value, mode="max", top_k=1)
        assert core.load_best(tmp_path)[0] == {"v": 0.9}

    def test_metadata_and_the_newest_state_belong_together(self, tmp_path: Path) -> None:
        """codex_ml's `state.pt` is the first checkpoint ever, its digest that of the last."""
        for number in range(2):
            core.save_checkpoint(tmp_path, {"n": number}, metadata={"metrics": {"accuracy": 0.9}})
            told = json.loads((tmp_path / "metadata.json").read_text())
            assert told["schema_version"] == core.SCHEMA_VERSION and told["metrics"]["accuracy"] == 0.9
            assert "python_version" in told["environment"]
            digest = (tmp_path / "state.sha256").read_text()
            assert told["digest_sha256"] == digest == files.sha256_of(tmp_path / "state.pt")

    def test_last_epochs(self, tmp_path: Path) -> None:
        for epoch in range(4):
            core.save_checkpoint(
                tmp_path / f"epoch-{epoch}",
                payload={"n": epoch},
                metadata={"metrics": {"val_loss": float(epoch)}},
                keep_last=2,
            )
        assert names(tmp_path, "epoch-*") == ["epoch-2", "epoch-3"]

    def test_last_and_best_epochs(self, tmp_path: Path) -> None:
        for epoch in range(5):
            core.save_checkpoint(
                tmp_path / f"epoch-{epoch:04d}", payload={"n": epoch}, include_rng=False, keep_last=2, best_k=2,
                metadata={"epoch": epoch, "metrics": {"val_loss": 1 - epoch / 10}}, best_metric="val_loss",
            )  # fmt: skip
        assert names(tmp_path, "epoch-*") == ["epoch-0003", "epoch-0004"]
        index = json.loads((tmp_path / "best_index.json").read_text())
        assert {each["path"] for each in index} == {"epoch-0003", "epoch-0004"}

    def test_the_best_epoch_is_not_pruned(self, tmp_path: Path) -> None:
        for epoch, loss in enumerate([0.1, 0.9, 0.8, 0.7]):
            core.save_checkpoint(tmp_path / f"epoch-{epoch}", {}, metric_value=loss, keep_last=1, best_k=1)
        assert names(tmp_path, "epoch-*") == ["epoch-0", "epoch-3"]

    def test_other_folders_stay(self, tmp_path: Path) -> None:
        """codex_ml removes every folder beside the checkpoints but the last ones, whatever it is."""
        for name in ("data2024", "logs", "src", "epoch-final", "epoch-0"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "work.txt").write_text("mine")
        for epoch in range(1, 4):
            core.save_checkpoint(tmp_path / f"epoch-{epoch}", {}, metric_value=epoch, keep_last=1, best_k=1, top_k=1)
        assert {"data2024", "logs", "src", "epoch-final", "epoch-0"} <= set(names(tmp_path))
        assert all((tmp_path / name / "work.txt").exists() for name in ("data2024", "epoch-final", "epoch-0"))

    def test_another_run_keeps_its_best(self, tmp_path: Path) -> None:
        """codex_ml removes folders of other runs that are worse, and writes an index above them."""
        core.save_checkpoint(tmp_path / "run-a", {}, metric_value=5.0, top_k=1)
        for number in range(3):
            core.save_checkpoint(tmp_path / "run-b", {"n": number}, metric_value=0.1, top_k=1)
        assert names(tmp_path) == ["run-a", "run-b"] and core.load_best(tmp_path / "run-a")[1].metric_value == 5.0

    def test_a_damaged_index_is_made_again(self, tmp_path: Path) -> None:
        """codex_ml either fails at every later save, or forgets what was saved."""
        for value in (0.1, 0.2):
            core.save_checkpoint(tmp_path, {"v": value}, metric_value=value)
        (tmp_path / "index.json").write_text('{"entries": [{"pa')
        assert core.load_best(tmp_path)[0] == {"v": 0.1}
        core.save_checkpoint(tmp_path, {"v": 0.3}, metric_value=0.3)
        assert core.load_best(tmp_path)[0] == {"v": 0.1}
        assert len(json.loads((tmp_path / "index.json").read_text())["entries"]) == 3
        assert (tmp_path / "index.json.damaged-1").exists()

    def test_an_index_names_no_file_elsewhere(self, tmp_path: Path) -> None:
        victim = tmp_path / "other.pt"
        victim.write_text("mine")
        (tmp_path / "run").mkdir()
        entries = [{"path": "../other.pt", "metric": 99.0, "created_at": 0, "sha256": None}]
        (tmp_path / "run" / "index.json").write_text(json.dumps({"entries": entries}))
        core.save_checkpoint(tmp_path / "run", {}, metric_value=0.1, top_k=1)
        assert victim.read_text() == "mine"

    def test_random_states(self, tmp_path: Path) -> None:
        random.seed(1337)
        path, _ = core.save_checkpoint(tmp_path, {"x": 1}, metric_value=0.0)
        expected = [random.random() for _ in range(4)]
        core.load_checkpoint(path, restore_rng=True)
        assert [random.random() for _ in range(4)] == expected
        state = core.capture_rng_state()
        expected = [random.random() for _ in range(5)]
        core.restore_rng_state(state)
        assert [random.random() for _ in range(5)] == expected

    def test_config_is_recorded(self, tmp_path: Path) -> None:
        config = {"lr": 0.1, "config_version": 3, "dataset_version": "d1"}
        path, _ = core.save_checkpoint(tmp_path, {}, config=config)
        meta = core.verify_checkpoint(path)
        assert (meta.config_version, meta.dataset_version, meta.config_snapshot) == ("3", "d1", config)
        assert len(meta.config_hash) == 64

    def test_what_cannot_be_stored_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(Refused, match=r"\['state'\]\['x'\]"):
            core.save_checkpoint(tmp_path, {"x": object()})
        assert names(tmp_path) == []

    def test_unknown_schema(self, tmp_path: Path) -> None:
        path = tmp_path / "x.pt"
        for meta, what in (({}, "missing schema_version"), ({"schema_version": "9"}, "Unsupported.*9")):
            path.write_bytes(payload.dumps({"state": {}, "meta": meta}, use_torch=False))
            with pytest.raises(core.CheckpointIntegrityError, match=what):
                core.load_checkpoint(path)
        with pytest.raises(core.CheckpointIntegrityError, match="Missing sha256"):
            core.verify_checkpoint(path)

    def test_nothing_saved(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="No checkpoints found"):
            core.load_best(tmp_path)

    def test_many_savers_at_once(self, tmp_path: Path) -> None:
        """codex_ml reads and writes its index without a lock."""
        threads = [
            threading.Thread(
                target=core.save_checkpoint, args=(tmp_path, {"n": n}), kwargs={"metric_value": n, "top_k": 50}
            )
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(json.loads((tmp_path / "index.json").read_text())["entries"]) == 8

    def test_an_interrupted_save_leaves_the_old_ones(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        core.save_checkpoint(tmp_path, {"n": 1}, metric_value=0.5)

        def interrupted(*args: Any, **options: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(payload, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            core.save_checkpoint(tmp_path, {"n": 2}, metric_value=0.1)
        assert core.load_best(tmp_path)[0] == {"n": 1} and not list(tmp_path.glob(".*.new"))

    def test_leftovers_of_a_killed_save_are_swept(self, tmp_path: Path) -> None:
        (tmp_path / ".ckpt-1.pt.99-0.new").write_bytes(b"half")
        core.save_checkpoint(tmp_path, {"n": 1})
        assert not (tmp_path / ".ckpt-1.pt.99-0.new").exists()


class TestPickles:
    def test_weights_only_is_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: dict[str, Any] = {}
        module = importlib.import_module("holdfast.compat.codex_ml.utils.checkpoint_core")
        raw = core.trusted_pickle_dumps({"state": {}})

        def load(source: Any, **options: Any) -> Any:
            asked.update(options, source=type(source).__name__)
            return {"state": 1}

        monkeypatch.setattr(module, "torch", SimpleNamespace(load=load, __version__="2.2.0"))
        assert core._deserialize_payload(raw) == {"state": 1}
        assert asked == {"map_location": "cpu", "weights_only": True, "source": "BytesIO"}

        def refuse(*args: Any, **options: Any) -> None:
            raise RuntimeError("invalid")

        monkeypatch.setattr(module, "torch", SimpleNamespace(load=refuse))
        with pytest.raises(pickle.UnpicklingError, match=r"Class posix.system not in whitelist"):
            core._deserialize_payload(b"cposix\nsystem\np0\n(Vecho evil\np1\ntp2\nRp3\n.")


class Dummy:
    def __init__(self, value: int = 1) -> None:
        self.value = value

    def state_dict(self) -> dict[str, int]:
        return {"w": self.value}

    def load_state_dict(self, state_dict: dict[str, int], strict: bool = True) -> None:
        self.value = state_dict["w"]


class TestFile:
    """`utils.checkpointing.save_checkpoint` and its readers."""

    def test_round_trip(self, tmp_path: Path) -> None:
        path = tmp_path / "runs" / "basic.ckpt"
        saved = checkpointing.save_checkpoint(
            path, Dummy(7), {"lr": 0.5}, {"step": 10}, epoch=4, extra={"epoch": 3}, format="pickle"
        )
        assert saved is None
        fresh = Dummy()
        state = checkpointing.load_training_checkpoint(path, fresh, None, None, format="pickle")
        assert state["epoch"] == 4 and state["extra"]["epoch"] == 3 and fresh.value == 7
        assert state["optimizer_state_dict"]["lr"] == state["optimizer"]["lr"] == 0.5
        epoch, extra = checkpointing.load_training_checkpoint(path, fresh, format="pickle")  # as some versions have it
        assert (epoch, extra["epoch"]) == (4, 3)
        assert dict(state)["epoch"] == {**state}["epoch"] == 4 and "model" in state and "model" in state.keys()  # noqa: SIM118
        assert json.loads((tmp_path / "runs" / "basic.meta.json").read_text())["epoch"] == 4
        assert checkpointing.load_checkpoint(path)["model"] == {"w": 7}

    def test_no_pickle_is_written(self, tmp_path: Path) -> None:
        path = tmp_path / "x.ckpt"
        checkpointing.save_checkpoint(path, Dummy(), None, None, 1, format="pickle")
        assert json.loads(path.read_text())["epoch"] == 1

    def test_an_old_pickle_is_read_without_running_it(self, tmp_path: Path) -> None:
        path = tmp_path / "old.ckpt"
        path.write_bytes(pickle.dumps({"model_state_dict": {"w": 3}, "epoch": "2"}))
        fresh = Dummy()
        assert checkpointing.load_training_checkpoint(path, fresh, format="pickle")["epoch"] == "2" and fresh.value == 3
        path.write_bytes(b"cposix\nsystem\n(Vtouch /tmp/never\ntR.")
        with pytest.raises(checkpointing.CheckpointLoadError, match="no class is loaded"):
            checkpointing.load_training_checkpoint(path, format="pickle")

    @pytest.mark.parametrize("format_", ["auto", "pickle"])
    def test_a_file_that_is_no_checkpoint(self, tmp_path: Path, format_: str) -> None:
        (tmp_path / "bad.pt").write_bytes(b"not-a-checkpoint")
        with pytest.raises(checkpointing.CheckpointLoadError):
            checkpointing.load_training_checkpoint(tmp_path / "bad.pt", format=format_)
        with pytest.raises(checkpointing.CheckpointLoadError, match="does not exist"):
            checkpointing.load_training_checkpoint(tmp_path / "none.pt")
        with pytest.raises(ValueError, match="unsupported checkpoint format"):
            checkpointing.save_checkpoint(tmp_path / "x", None, None, None, 1, format="xml")

    def test_each_file_has_its_own_checksum(self, tmp_path: Path) -> None:
        """codex_ml has one for the folder: an older file is compared with the newest, or not at all."""
        for epoch in (1, 2):
            checkpointing.save_checkpoint(tmp_path / f"{epoch}.pt", Dummy(), None, None, epoch, format="pickle")
        assert checkpointing.load_training_checkpoint(tmp_path / "1.pt", format="pickle")["epoch"] == 1
        (tmp_path / "2.pt").unlink()
        assert checkpointing.load_training_checkpoint(tmp_path / "1.pt", format="pickle")["epoch"] == 1
        (tmp_path / "1.pt").write_text("{}")
        with pytest.raises(checkpointing.CheckpointLoadError, match="checksum mismatch"):
            checkpointing.load_training_checkpoint(tmp_path / "1.pt", format="pickle")
        with pytest.raises(RuntimeError, match=r"Checkpoint checksum mismatch for 1.pt"):
            checkpointing.verify_ckpt_integrity(str(tmp_path / "1.pt"))

    def test_an_interrupted_save_leaves_the_old_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """codex_ml writes into the only copy."""
        path = tmp_path / "a.pt"
        checkpointing.save_checkpoint(path, Dummy(1), None, None, 1, format="pickle")
        record = importlib.import_module("holdfast.compat.codex_ml.checksums").record

        def then_die(*args: Any) -> None:
            record(*args)
            raise KeyboardInterrupt

        monkeypatch.setattr("holdfast.compat.codex_ml.checksums.record", then_die)
        with pytest.raises(KeyboardInterrupt):
            checkpointing.save_checkpoint(path, Dummy(2), None, None, 2, format="pickle")
        assert checkpointing.load_training_checkpoint(path, format="pickle")["epoch"] == 1

    def test_event(self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        checkpointing.save_checkpoint(tmp_path / "a.pt", Dummy(), None, None, 0, format="pickle")
        assert capsys.readouterr().out == ""
        monkeypatch.setenv("CODEX_EMIT_CHECKPOINT_JSON", "1")
        checkpointing.save_checkpoint(tmp_path / "a.pt", Dummy(), None, None, 0, format="pickle")
        event = json.loads(capsys.readouterr().out)
        assert (event["event"], event["epoch"]) == ("checkpoint_saved", 0) and len(event["sha256"]) == 64
        assert event["bytes"] == (tmp_path / "a.pt").stat().st_size

    def test_unknown_options_are_errors(self, tmp_path: Path) -> None:
        with pytest.raises(TypeError, match="unknown: steps"):
            checkpointing.save_checkpoint(tmp_path / "a", None, None, None, 1, steps=3)
        with pytest.raises(TypeError):
            checkpointing.save_checkpoint(out_dir=tmp_path, step=1, state={}, unknown=1)

    def test_the_documented_call(self, tmp_path: Path) -> None:
        meta = checkpointing.save_checkpoint(
            out_dir=tmp_path,
            step=1200,
            state={"epoch": 3},
            metrics={"val_loss": 1.23},
            best_key="val_loss",
            keep_last_k=3,
        )
        assert checkpointing.load_checkpoint(meta["path"]) == {"epoch": 3}
        assert json.loads((tmp_path / "best.json").read_text())["value"] == 1.23

    def test_providers(self) -> None:
        for name in ("Module", "Optimizer", "Scheduler", "GradScaler"):
            made, target = getattr(checkpointing, f"{name}StateDictProvider"), Dummy(5)
            assert made(target).state_dict() == {"w": 5} and made(None).state_dict() == {}
            made(target).load_state_dict({"w": 8})
            assert target.value == 8 and made(None).load_state_dict({}) is None
            assert isinstance(made(target), checkpointing.StateDictProvider)


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.compat.codex_ml.utils.checkpointing.TORCH_AVAILABLE", False)


@pytest.mark.usefixtures("without_torch")
class TestEpochs:
    """`utils.checkpointing.CheckpointManager`."""

    def test_last_and_best_stay(self, tmp_path: Path) -> None:
        manager = checkpointing.CheckpointManager(tmp_path, keep_last=1, keep_best=1)
        for epoch, loss in ((1, 1.0), (2, 0.5), (3, 0.8)):
            assert manager.save(epoch, metrics={"val_loss": loss}) == tmp_path / f"epoch-{epoch}"
        assert names(tmp_path, "epoch-*") == ["epoch-2", "epoch-3"]
        best = json.loads((tmp_path / "best.json").read_text())["items"]
        assert best[0]["epoch"] == 2 and best[0]["metrics"] == {"val_loss": 0.5}
        assert (tmp_path / "last").read_text() == str(tmp_path / "epoch-3")

    def test_files_of_an_epoch(self, tmp_path: Path) -> None:
        folder = checkpointing.CheckpointManager(tmp_path).save(1, Dummy(4), config={"lr": 1}, metrics={"loss": 0.1})
        assert names(folder) == ["checksums.json", "config.json", "meta.json", "rng.json", "state.json", "system.json"]
        meta = json.loads((folder / "meta.json").read_text())
        assert (meta["epoch"], meta["metrics"], meta["schema_version"]) == (1, {"loss": 0.1}, "1.0")

    @pytest.mark.parametrize(
        ("key", "values", "best"), [("val_loss", [5, 3, 4, 2, 1], [5, 4]), ("score", [1, 9, 5], [2, 3])]
    )
    def test_best_k(self, tmp_path: Path, key: str, values: list[float], best: list[int]) -> None:
        manager = checkpointing.CheckpointManager(tmp_path, keep_last=1, keep_best=2)
        for epoch, value in enumerate(values, start=1):
            manager.save(epoch, metrics={key: value})
        assert [each["epoch"] for each in json.loads((tmp_path / "best.json").read_text())["items"]] == best

    def test_a_metric_of_ones_own(self, tmp_path: Path) -> None:
        manager = checkpointing.CheckpointManager(tmp_path, keep_last=1, metric="acc", mode="max", best_k=2)
        for epoch, value in enumerate([0.3, 0.6, 0.5, 0.1], start=1):
            manager.save(epoch, metrics={"acc": value, "val_loss": value})
        items = json.loads((tmp_path / "best.json").read_text())["items"]
        assert [each["value"] for each in items] == [0.6, 0.5]
        assert (tmp_path / "best").resolve() == tmp_path / "epoch-2"
        assert (tmp_path / "best_candidates" / "best-2" / "meta.json").exists()
        assert names(tmp_path, "epoch-*") == ["epoch-2", "epoch-3", "epoch-4"]

    def test_a_loss_ranks_before_a_score_and_both_before_neither(self, tmp_path: Path) -> None:
        manager = checkpointing.CheckpointManager(tmp_path, keep_best=3)
        for epoch, metrics in enumerate(({"acc": 1.0}, {"score": 0.9}, {"val_loss": 2.0}), start=1):
            manager.save(epoch, metrics=metrics)
        told = json.loads((tmp_path / "best.json").read_text())
        assert (told["metric"], told["value"], [each["epoch"] for each in told["items"]]) == (
            "val_loss",
            2.0,
            [3, 2, 1],
        )

    def test_not_a_number_is_never_best(self, tmp_path: Path) -> None:
        """In codex_ml a first NaN stays the best for ever."""
        manager = checkpointing.CheckpointManager(tmp_path)
        for epoch, loss in enumerate([math.nan, 0.5, math.nan]):
            manager.save(epoch, metrics={"val_loss": loss})
        [best] = json.loads((tmp_path / "best.json").read_text())["items"]
        assert best["epoch"] == 1

    def test_only_a_better_one_becomes_best(self, tmp_path: Path) -> None:
        manager = checkpointing.CheckpointManager(tmp_path)
        for epoch, loss in enumerate([0.5, 0.5, 0.6]):
            manager.save(epoch, metrics={"val_loss": loss})
        assert json.loads((tmp_path / "best.json").read_text())["items"][0]["epoch"] == 0

    def test_an_epoch_saved_again_is_listed_once(self, tmp_path: Path) -> None:
        manager = checkpointing.CheckpointManager(tmp_path, keep_best=3)
        for loss in (0.5, 0.9):
            manager.save(1, Dummy(int(loss * 10)), metrics={"val_loss": loss})
        [best] = json.loads((tmp_path / "best.json").read_text())["items"]
        fresh = Dummy()
        assert best["metrics"]["val_loss"] == 0.9 and manager.load_latest(fresh)["state"] and fresh.value == 9

    def test_what_others_put_into_an_epoch_stays(self, tmp_path: Path) -> None:
        manager = checkpointing.CheckpointManager(tmp_path)
        folder = manager.save(1, Dummy(1), config={"lr": 1})
        (folder / "plots").mkdir()
        (folder / "plots" / "loss.png").write_text("mine")
        (folder / "notes.txt").write_text("mine")
        manager.save(1, Dummy(2))
        assert (folder / "plots" / "loss.png").read_text() == (folder / "notes.txt").read_text() == "mine"
        assert not (folder / "config.json").exists() and manager.load_latest()["state"]

    def test_other_names_stay(self, tmp_path: Path) -> None:
        """codex_ml fails on `epoch-final`."""
        (tmp_path / "epoch-final").mkdir()
        (tmp_path / "epoch-0").mkdir()  # no checkpoint
        manager = checkpointing.CheckpointManager(tmp_path, keep_last=1)
        for epoch in (1, 2):
            manager.save(epoch)
        assert names(tmp_path, "epoch-*") == ["epoch-0", "epoch-2", "epoch-final"]
        assert manager.load_latest()["path"] == tmp_path / "epoch-2"

    def test_a_wrong_marker_is_no_problem(self, tmp_path: Path) -> None:
        manager = checkpointing.CheckpointManager(tmp_path)
        for epoch in (9, 10):
            manager.save(epoch, Dummy(epoch))
        for text in (str(tmp_path / "missing"), "", "\xff", "epoch-10"):
            (tmp_path / "last").write_text(text, encoding="latin-1")
            assert manager.load_latest()["meta"]["epoch"] == 10

    def test_a_damaged_epoch_is_passed_over(self, tmp_path: Path) -> None:
        """codex_ml raises, though earlier epochs are intact."""
        manager = checkpointing.CheckpointManager(tmp_path)
        for epoch in (1, 2):
            manager.save(epoch, Dummy(epoch))
        (tmp_path / "epoch-2" / "state.json").write_text("{}")
        fresh = Dummy()
        with pytest.warns(RuntimeWarning, match=r"epoch-2 is passed over.*checksum mismatch"):
            assert manager.load_latest(fresh)["meta"]["epoch"] == 1
        assert fresh.value == 1
        (tmp_path / "epoch-1" / "state.json").write_text("{}")
        with pytest.warns(RuntimeWarning), pytest.raises(RuntimeError, match="no intact checkpoint"):
            manager.load_latest()

    def test_nothing_to_load(self, tmp_path: Path) -> None:
        manager = checkpointing.CheckpointManager(tmp_path / "empty")
        assert manager.load_latest(strict=False) == {"meta": {}, "state": False, "path": None}
        with pytest.raises(FileNotFoundError):
            manager.load_latest()
        with pytest.raises(FileNotFoundError, match="resume path not found"):
            manager.resume_from(tmp_path / "none")

    def test_search_path(self, tmp_path: Path) -> None:
        checkpointing.CheckpointManager(tmp_path / "a").save(3, Dummy(3))
        other = checkpointing.CheckpointManager(tmp_path / "b")
        assert other.load_latest(search_path=tmp_path / "a")["meta"]["epoch"] == 3
        assert other.load_latest(search_path=tmp_path / "a" / "epoch-3")["meta"]["epoch"] == 3

    def test_random_states_go_on_where_they_were(self, tmp_path: Path) -> None:
        """codex_ml goes back to where the seed was set, so that a resumed run repeats its random numbers."""
        manager = checkpointing.CheckpointManager(tmp_path)
        checkpointing.set_seed(123, tmp_path)
        random.random()
        manager.save(1)
        expected = random.random()
        random.seed(7)
        manager.load_latest()
        assert random.random() == expected
        assert json.loads((tmp_path / "seeds.json").read_text())["python"] == 123

    def test_model_must_fit(self, tmp_path: Path) -> None:
        manager = checkpointing.CheckpointManager(tmp_path)
        manager.save(1, Dummy())
        other = SimpleNamespace(state_dict=lambda: {"v": 1}, load_state_dict=lambda state: None)
        with pytest.raises(ValueError, match=r"missing: \['v'\]; unexpected: \['w'\]"):
            manager.load_latest(other)

    def test_save_now(self, tmp_path: Path) -> None:
        manager = checkpointing.CheckpointManager(tmp_path, keep_last=2)
        for step in (1, 2, 3):
            path = manager.save_now(step, {"n": step}, {"loss": 1.0 / step}, rng_state=True)
        assert path.exists() and path.parent == tmp_path / "epoch-0003"
        sidecar = json.loads(path.with_suffix(".meta.json").read_text())
        assert sidecar["metrics"] == {"loss": pytest.approx(1 / 3)} and sidecar["rng"]
        assert names(tmp_path, "epoch-*") == ["epoch-0002", "epoch-0003"]
        assert manager.load_latest()["path"] == tmp_path / "epoch-0003"
        assert core.load_checkpoint(manager.save_now(4, b"raw bytes"))[0] == {"payload": b"raw bytes"}

    def test_a_kill_leaves_no_half_epoch(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        manager = checkpointing.CheckpointManager(tmp_path)
        manager.save(1, Dummy(1))
        monkeypatch.setattr(files, "write_json", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            manager.save(2, Dummy(2))
        monkeypatch.undo()
        assert names(tmp_path, "epoch-*") == ["epoch-1"] and manager.load_latest()["meta"]["epoch"] == 1
        monkeypatch.setattr("holdfast.compat.codex_ml.utils.checkpointing.TORCH_AVAILABLE", False)
        manager.save(3, Dummy(3))
        assert not list(tmp_path.glob(".epoch-*"))

    def test_tokenizers(self, tmp_path: Path) -> None:
        class Tokenizer:
            def save_pretrained(self, folder: str) -> None:
                os.mkdir(folder)
                Path(folder, "vocab.txt").write_text("a")

        folder = checkpointing.CheckpointManager(tmp_path).save(1, tokenizer=Tokenizer())
        assert (folder / "tokenizer" / "vocab.txt").read_text() == "a"
        with pytest.raises(Refused, match="save_pretrained"):
            checkpointing.CheckpointManager(tmp_path).save(2, tokenizer=object())

    def test_failed_copies_are_told(self, tmp_path: Path) -> None:
        """codex_ml says nothing."""

        class Broken:
            def upload_directory(self, local_path: Path, remote_path: str) -> None:
                raise OSError("no route")

        manager = checkpointing.CheckpointManager(tmp_path, storage=Broken(), remote_prefix="runs/demo")
        with pytest.warns(RuntimeWarning, match=r"saved, but not copied: no route"):
            assert manager.save(1).exists()


class TestSteps:
    """`training.checkpoint_manager.CheckpointManager`."""

    def test_best_is_promoted(self, tmp_path: Path) -> None:
        manager = steps.CheckpointManager(tmp_path, keep_last=3, metric="eval_perplexity", mode="min")
        for step, value in enumerate([3.0, 2.5, 2.4], start=1):
            manager.save_now(step, b"x", {"eval_perplexity": value})
        assert os.readlink(tmp_path / "best") == "ckpt-3.pt"
        told = json.loads((tmp_path / "best.json").read_text())
        assert (told["value"], told["step"], told["path"], told["metric"]) == (2.4, 3, "ckpt-3.pt", "eval_perplexity")

    def test_best_is_not_pruned(self, tmp_path: Path) -> None:
        manager = steps.CheckpointManager(tmp_path, keep_last=1, metric="loss", mode="min")
        manager.save_now(1, b"x", {"loss": 1.0})
        manager.save_now(2, b"y", {"loss": 2.0})
        assert os.readlink(tmp_path / "best") == "ckpt-1.pt" and names(tmp_path, "ckpt-*.pt") == [
            "ckpt-1.pt",
            "ckpt-2.pt",
        ]

    def test_a_former_best_is_pruned_at_once(self, tmp_path: Path) -> None:
        manager = steps.CheckpointManager(tmp_path, keep_last=1, metric="loss")
        for step, loss in enumerate([1.0, 3.0, 0.5], start=1):
            manager.save_now(step, b"x", {"loss": loss})
        assert names(tmp_path, "*.pt") == ["ckpt-3.pt"]

    def test_every_n_steps_and_the_last(self, tmp_path: Path) -> None:
        manager = steps.CheckpointManager(tmp_path, keep_last=3, metric=None)
        for step in range(1, 11):
            manager.maybe_save(step, b"x", None, save_steps=2)
        assert set(names(tmp_path, "ckpt-*.pt")) == {"ckpt-6.pt", "ckpt-8.pt", "ckpt-10.pt"}
        assert steps.CheckpointManager.find_resume(tmp_path) == str(tmp_path / "ckpt-10.pt")
        assert steps.CheckpointManager.find_resume(tmp_path / "none") is None

    def test_second_best_is_kept(self, tmp_path: Path) -> None:
        """codex_ml records only what becomes the very best."""
        manager = steps.CheckpointManager(tmp_path, keep_last=1, metric="loss", best_k=2)
        for step, loss in enumerate([1.0, 3.0, 2.0, 9.0], start=1):
            manager.save_now(step, b"x", {"loss": loss})
        items = json.loads((tmp_path / "best.json").read_text())["items"]
        assert [each["step"] for each in items] == [1, 3]
        assert os.readlink(tmp_path / "best_candidates" / "best-2.pt") == "../ckpt-3.pt"
        assert (tmp_path / "best_candidates" / "best-2.pt").read_bytes() == b"x"
        assert names(tmp_path, "*.pt") == ["ckpt-1.pt", "ckpt-3.pt", "ckpt-4.pt"]

    def test_sidecars_go_with_their_files(self, tmp_path: Path) -> None:
        manager = steps.CheckpointManager(tmp_path, keep_last=1)
        for step in (1, 2):
            path = manager.save_now(step, b"x", {"loss": 1.0}, rng_state=True)
        assert names(tmp_path, "*.meta.json") == ["ckpt-2.meta.json"]
        assert json.loads(path.with_suffix(".meta.json").read_text())["rng"]["python"]

    def test_other_files_stay(self, tmp_path: Path) -> None:
        for name in ("ckpt-final.pt", "base.pt", "ckpt-1.txt"):
            (tmp_path / name).write_text("mine")
        manager = steps.CheckpointManager(tmp_path, keep_last=1)
        for step in (1, 2):
            manager.save_now(step, b"x")
        assert names(tmp_path, "*.*") == ["base.pt", "ckpt-1.txt", "ckpt-2.pt", "ckpt-final.pt"]

    def test_nan_is_never_best_and_max(self, tmp_path: Path) -> None:
        manager = steps.CheckpointManager(tmp_path, metric="acc", mode="max")
        for step, value in enumerate([math.nan, 0.5, 0.7, 0.7], start=1):
            manager.save_now(step, b"x", {"acc": value})
        assert os.readlink(tmp_path / "best") == "ckpt-3.pt"

    def test_goes_on_with_what_is_there(self, tmp_path: Path) -> None:
        steps.CheckpointManager(tmp_path, metric="loss").save_now(1, b"x", {"loss": 1.0})
        again = steps.CheckpointManager(tmp_path, metric="loss")
        again.save_now(2, b"y", {"loss": 2.0})
        assert os.readlink(tmp_path / "best") == "ckpt-1.pt" and again.keep_last == 5
        (tmp_path / "best.json").write_text('{"items": [{"path": "checkpoint-2", "value": 0.3, "step": 2}]}')
        assert steps.CheckpointManager(tmp_path, metric="loss")._best_records == []

    def test_callback_needs_save_steps(self, tmp_path: Path) -> None:
        with pytest.raises(RuntimeError, match="save_steps must be set"):
            steps.CheckpointManager(tmp_path).callback()


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("metric", [math.nan, None, "high"])
def test_what_is_not_a_number_ranks_last(mode: str, metric: Any) -> None:
    assert files.rank(metric, mode) > max(files.rank(each, mode) for each in (-math.inf, 0, math.inf))


class TestNeighbours:
    def test_retain(self, tmp_path: Path) -> None:
        retention = names_of("codex_ml.utils.checkpoint_retention")
        for name, value in (("epoch-1", 0.9), ("epoch-2", 0.5), ("epoch-3", 0.7)):
            (tmp_path / name).mkdir()
            (tmp_path / name / "metadata.json").write_text(
                json.dumps({"val_loss": value, "metrics": {"acc": 1 - value}})
            )
        (tmp_path / "best").mkdir()
        with pytest.raises(ValueError, match="mode"):
            retention.retain(tmp_path, retention.RetainSpec(best_k=1, mode="median"))
        retention.retain(tmp_path, retention.RetainSpec(keep_last=0, best_k=0))
        assert len(names(tmp_path)) == 4
        retention.retain(tmp_path, retention.RetainSpec(keep_last=0, best_k=1))
        assert names(tmp_path) == ["best", "epoch-2", "epoch-3"]
        retention.retain(tmp_path, retention.RetainSpec(keep_last=1, best_k=0))
        assert names(tmp_path) == ["best", "epoch-3"]

    def test_prune_with_nothing_asked_for_keeps_all(self, tmp_path: Path) -> None:
        """codex_ml's default arguments remove every checkpoint; names with fewer than four digits it does not see."""
        prune = names_of("codex_ml.utils.retention").prune_checkpoints
        for epoch in range(6):
            (tmp_path / f"epoch-{epoch}").mkdir()
        (tmp_path / "epoch-final").mkdir()
        (tmp_path / "latest.json").write_text('{"epoch": 0}')
        assert prune(tmp_path)["pruned"] == []
        planned = prune(tmp_path, keep_last=1, keep_every=2, dry_run=True)
        assert planned == {"total": 6, "kept": [0, 2, 4, 5], "pruned": [1, 3], "protected_latest": 0, "dry_run": True}
        assert len(names(tmp_path, "epoch-*")) == 7
        assert prune(tmp_path, max_epochs=2)["kept"] == [0, 4, 5]
        assert names(tmp_path, "epoch-*") == ["epoch-0", "epoch-4", "epoch-5", "epoch-final"]
        assert prune(tmp_path / "none")["total"] == 0

    def test_saver_removes_only_its_own_files(self, tmp_path: Path) -> None:
        """codex_ml removes any `.pt` file of the folder by its age."""
        saver = names_of("codex_ml.utils.checkpoint_manager")
        (tmp_path / "pretrained.pt").write_text("mine")
        for number in range(4):
            saver.save_checkpoint({"n": number}, tmp_path / f"{number}.pt", keep_last_k=2)
        assert names(tmp_path, "*.pt") == ["2.pt", "3.pt", "pretrained.pt"]
        assert saver.load_checkpoint(tmp_path / "3.pt") == {"n": 3}
        with pytest.raises(FileNotFoundError):
            saver.load_checkpoint(tmp_path / "0.pt")

    def test_legacy_file(self, tmp_path: Path) -> None:
        legacy = names_of("codex_ml.utils.checkpoint")
        assert legacy.save_checkpoint({"x": 1}, tmp_path / "model.ckpt", include_rng=False) is None
        assert legacy.load_checkpoint(tmp_path / "model.ckpt") == {"x": 1}
        with pytest.raises(TypeError):
            legacy.save_checkpoint({"x": 1})

    def test_legacy_folder(self, tmp_path: Path) -> None:
        legacy = names_of("codex_ml.utils.checkpoint")
        for number in range(3):
            folder = legacy.save_checkpoint(
                model=Dummy(number),
                optimizer=None,
                scheduler=None,
                out_dir=tmp_path / f"ck{number}",
                metric=number,
                best_k=1,
            )
        assert names(tmp_path, "ck*") == ["ck0", "ck2"] and folder == tmp_path / "ck2"
        fresh = Dummy()
        told = legacy.load_checkpoint(
            model=fresh, optimizer=None, scheduler=None, ckpt_dir=tmp_path / "ck0", strict=True
        )
        assert fresh.value == 0 and told["metrics"] == {"eval_loss": 0.0}
        (folder / "model.pt").write_bytes(b"{}")
        with pytest.raises(ValueError, match="checksum mismatch"):
            legacy.load_checkpoint(model=fresh, optimizer=None, scheduler=None, ckpt_dir=folder)

    def test_bestk(self, tmp_path: Path) -> None:
        update = names_of("codex_ml.checkpointing.bestk").update_and_prune
        index = tmp_path / "index.json"
        for step in range(4):
            (tmp_path / f"checkpoint_{step}.pt").write_text("x")
        told = update(tmp_path / "checkpoint_0.pt", metric=0.1, k=1, index_path=index, dry_run=True)
        assert told["dry_run"] is True and not index.exists()
        for step in range(4):
            told = update(tmp_path / f"checkpoint_{step}.pt", metric=float(step), k=2, index_path=index, keep_last=True)
        assert [each["step"] for each in told["kept"]] == [0, 3] and len(told["pruned"]) == 1
        assert names(tmp_path, "*.pt") == ["checkpoint_0.pt", "checkpoint_3.pt"]
        with pytest.raises(FileNotFoundError, match="exist"):
            update(tmp_path / "none.pt", metric=1.0, k=3, index_path=index)
        index.write_text("{ invalid")
        with pytest.raises(ValueError, match="JSON"):
            update(tmp_path / "checkpoint_0.pt", metric=1.0, k=3, index_path=index)

    def test_retention_of_the_best(self, tmp_path: Path) -> None:
        module = names_of("codex_ml.checkpointing.best_k_retention")
        folder = tmp_path / "ckpt"
        saved = [
            module.save_checkpoint_with_retention(folder, {"step": step}, metric, step, keep_top_k=2)
            for step, metric in enumerate([0.5, float("nan"), 0.3, 0.9], start=1)
        ]
        assert saved[0].name == "checkpoint_step_1_metric_0.5000.pt"
        assert [path.exists() for path in saved] == [True, False, True, True], "the one just saved stays"
        index = module.CheckpointIndex(folder)
        assert {each.step for each in index.load()} == {1, 3, 4}
        planned = module.prune_checkpoints(folder, keep_top_k=1, keep_last=True, dry_run=True)
        assert planned["kept"] == [saved[3].name] and len(planned["deleted"]) == 2 and saved[0].exists()
        done = module.prune_checkpoints(folder, keep_top_k=1, metric_lower_better=False)
        assert (done["kept"], done["errors"]) == ([saved[3].name], [])
        assert sorted(path.name for path in folder.glob("*.pt")) == [saved[3].name]

    def test_retention_removes_nothing_elsewhere(self, tmp_path: Path) -> None:
        module = names_of("codex_ml.checkpointing.best_k_retention")
        (tmp_path / "other.pt").write_bytes(b"x")
        index = module.CheckpointIndex(tmp_path / "ckpt")
        (tmp_path / "ckpt" / "notes.txt").write_text("x")
        index.save([module.CheckpointEntry(name, 1.0, 1, 0.0) for name in ("../other.pt", "notes.txt")])
        assert len(module.prune_checkpoints(tmp_path / "ckpt", keep_top_k=0)["errors"]) == 2
        assert (tmp_path / "other.pt").exists() and (tmp_path / "ckpt" / "notes.txt").exists()
        index.index_path.write_text("{")
        with pytest.warns(UserWarning, match="not an index"):
            assert index.load() == []

    def test_bestk_removes_nothing_elsewhere(self, tmp_path: Path) -> None:
        update = names_of("codex_ml.checkpointing.bestk").update_and_prune
        victim, run = tmp_path / "victim.pt", tmp_path / "run"
        victim.write_text("mine")
        run.mkdir()
        (run / "checkpoint_1.pt").write_text("x")
        (run / "index.json").write_text(json.dumps({"entries": [{"path": str(victim), "metric": 9.0}]}))
        update(run / "checkpoint_1.pt", metric=1.0, k=1, index_path=run / "index.json")
        assert victim.exists()

    def test_schema_v2(self, tmp_path: Path) -> None:
        schema = names_of("codex_ml.checkpointing.schema_v2")
        for bad in (math.nan, math.inf):
            with pytest.raises(ValueError, match="not JSON compliant"):
                schema.to_canonical_bytes({"x": bad})
        made = schema.new_manifest("r", 1, 0)
        assert made["digest"] == schema.compute_manifest_digest({k: v for k, v in made.items() if k != "digest"})
        assert schema.validate_manifest(made) == [] and "missing field" in schema.validate_manifest({})[0]
        upgraded = schema.upgrade_from_v1({"meta": {"id": "x", "created_at": "now"}, "weights": {"format": "pt"}})
        assert (
            schema.is_v2(upgraded) and schema.validate_manifest(upgraded) == [] and len(schema.digest(upgraded)) == 64
        )
        assert schema.from_dict(upgraded)["run"]["id"] == "x"
        assert schema.load_json(schema.write_manifest_json(tmp_path / "m" / "x.json", upgraded)) == upgraded

    def test_atomic_files(self, tmp_path: Path) -> None:
        atomic, bytes_io = names_of("codex_ml.io.atomic"), names_of("codex_ml.checkpointing.atomic_io")
        atomic.atomic_write_json(tmp_path / "meta" / "m.json", {"x": 1, "nested": {"y": 2}})
        assert json.loads((tmp_path / "meta" / "m.json").read_text()) == {"x": 1, "nested": {"y": 2}}
        assert atomic.canonical_json_dumps({"b": 1, "a": 2}) == '{"a":2,"b":1}'
        with pytest.raises(ValueError, match="not JSON compliant"):
            atomic.canonical_json_dumps({"x": math.nan})
        path = bytes_io.atomic_write_bytes(tmp_path / "ckpts" / "ep1.pt", b"hello")
        assert path.read_bytes() == b"hello" and bytes_io.file_sha256(path) == files.sha256_of(path)
        with path.open("rb") as source:
            assert bytes_io.atomic_write_fileobj(tmp_path / "copy", source).read_bytes() == b"hello"

    def test_weights_folder(self, tmp_path: Path) -> None:
        folder = names_of("codex_ml.checkpointing.checkpoint_core")
        assert folder.save_checkpoint(str(tmp_path), state={"w": 1}, meta={"epoch": 2}) == str(tmp_path)
        state, meta = folder.load_checkpoint(str(tmp_path))
        assert state == {"w": 1} and meta["epoch"] == 2 and meta["_schema_version"] == "2.0"

    def test_earlier_names(self) -> None:
        module = importlib.import_module("holdfast.compat.codex_ml.checkpointing.compat")
        with pytest.warns(DeprecationWarning), pytest.raises(AttributeError):
            module.__not_a_real_symbol__  # noqa: B018


class TestCommandLine:
    def test_info_latest(self, tmp_path: Path) -> None:
        for step, loss in ((7, 0.1), (8, 0.2)):
            checkpointing.save_checkpoint(
                out_dir=tmp_path, step=step, state={}, metrics={"val_loss": loss}, best_key="val_loss"
            )
        for which, step in (("latest", 8), ("best", 7), ("7", 7)):
            command = [sys.executable, "-m", "holdfast.compat.codex_ml.cli.checkpoint", "--info", which, "--json"]
            ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
            assert json.loads(ran.stdout)["step"] == step and ran.stderr == ""

    @pytest.mark.usefixtures("without_torch")
    def test_info_of_other_files(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        main = names_of("codex_ml.cli.checkpoint").main
        checkpointing.CheckpointManager(tmp_path / "a").save(3, metrics={"val_loss": 0.5})
        steps.CheckpointManager(tmp_path / "b", metric="loss").save_now(4, b"x", {"loss": 0.5})
        assert main(["--info", "latest", "--dir", str(tmp_path / "a")]) == 0
        assert "epoch: 3" in capsys.readouterr().out
        assert main(["--info", "best", "--dir", str(tmp_path / "b")]) == 0
        assert "step: 4" in capsys.readouterr().out
        assert main(["--dir", str(tmp_path)]) == 1
        assert "has no checkpoint latest" in capsys.readouterr().err

    def test_validate_hashes_the_file(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """codex_ml compares two recorded digests with each other."""
        main = names_of("codex_ml.cli.checkpoint_validate").main
        core.save_checkpoint(tmp_path, {"x": 1}, metadata={"epoch": 1})
        assert (
            main(["validate", str(tmp_path)]) == 0
            and main(["validate", str(tmp_path), "--schema", "1.0", "--show"]) == 0
        )
        assert main(["validate", str(tmp_path), "--schema", "9"]) == 2
        state = tmp_path / "state.pt"
        data = state.read_bytes()
        state.unlink()
        state.write_bytes(data[:-1] + b"?")
        assert main(["validate", str(tmp_path)]) == 2 and "mismatch" in capsys.readouterr().err
        assert main(["validate", str(tmp_path / "none")]) == 2
