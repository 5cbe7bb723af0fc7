"""`holdfast training`, and the general commands in a folder of a training run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

pytestmark = pytest.mark.extras

if TYPE_CHECKING:
    from .conftest import Program


@pytest.fixture
def run(tmp_path: Path) -> str:
    from holdfast.training import save_checkpoint

    x = torch.ones(5)
    for step in (1, 2, 3):
        state = {"w": x * step, "frozen": x, "epoch": step, "opt": {"state": {0: {"m": x * step}}}}
        save_checkpoint(
            tmp_path / "run", step, state, metrics={"loss": abs(2 - step) + 0.5}, best_key="loss", rng=False
        )
    return str(tmp_path / "run")


def test_info_shows_the_latest_the_best_and_a_step(holdfast: Program, run: str) -> None:
    for ref, step in (("latest", 3), ("best", 2), ("1", 1)):
        found = holdfast("training", "info", ref, "--dir", run, "--json").json["checkpoint"]
        assert found["step"] == step
    shown = holdfast("training", "info", "best", "--dir", run)
    assert shown.code == 0
    assert holdfast("-C", run, "training", "info", "best").out == shown.out
    assert "loss 0.5" in shown.out


def test_info_is_about_the_folder_of_c_unless_another_is_named(holdfast: Program, run: str, tmp_path: Path) -> None:
    assert holdfast("-C", run, "training", "info", "--json").json["checkpoint"]["step"] == 3
    other = holdfast("-C", str(tmp_path), "training", "info", "1", "--dir", run, "--json")
    assert other.json["checkpoint"]["step"] == 1


def test_what_is_not_there_is_said(holdfast: Program, run: str, tmp_path: Path) -> None:
    assert holdfast("training", "info", "9", "--dir", run).code == 3
    assert holdfast("training", "info", "--dir", str(tmp_path / "nothing")).code == 3
    assert holdfast("training", "info", "newest", "--dir", run).code == 3
    for many in ("9" * 5000, "latest~" + "9" * 5000):
        assert holdfast("training", "info", many, "--dir", run).code == 3
    bare = holdfast("training")
    assert bare.code == 2
    assert "info" in bare.err


def test_log_and_show_know_a_training_folder(holdfast: Program, run: str) -> None:
    listed = holdfast("-C", run, "log")
    assert [line.split()[0] for line in listed.out.splitlines()] == ["step", "3", "2", "1"]
    assert "best" in listed.out.splitlines()[2]
    assert [each["step"] for each in holdfast("-C", run, "log", "-n", "2", "--json").json["items"]] == [3, 2]
    assert f"There are more: holdfast -C {run} log -n 2 --before 2\n" in holdfast("-C", run, "log", "-n", "2").err
    assert "There are more" not in holdfast("-C", run, "log", "-n", "0").err
    assert "step-00000003" in holdfast("-C", run, "show").out


def test_diff_says_which_tensors_changed_and_by_how_much(holdfast: Program, run: str) -> None:
    found = holdfast("-C", run, "diff", "1", "3", "--json").json
    assert found["same"] == 1
    assert [(each["name"], each["max_change"], each["relative_change"]) for each in found["changes"]] == [
        ("opt.state.0.m", 2.0, 2.0), ("w", 2.0, 2.0),
    ]  # fmt: skip
    assert found["values"] == {"epoch": [1, 3]}
    assert "2 → 3" in holdfast("-C", run, "diff").out


def test_verify_finds_damage(holdfast: Program, run: str) -> None:
    assert holdfast("-C", run, "verify").code == 0
    [shard] = Path(run, "step-00000002").glob("*.safetensors")
    shard.chmod(0o644)
    shard.write_bytes(shard.read_bytes()[:-1] + b"\xff")
    damaged = holdfast("-C", run, "verify")
    assert damaged.code == 5
    assert "step-00000002" in damaged.out


def test_prune_shows_its_plan_and_keeps_the_best(holdfast: Program, run: str) -> None:
    assert holdfast("-C", run, "prune").code == 6
    assert holdfast("-C", run, "prune", "--keep-for", "3d").code == 6
    assert "1 the best" in holdfast("-C", run, "prune", "--keep-last", "1", "--dry-run").out
    assert holdfast("-C", run, "prune", "--keep-last", "1", "--yes", "--json").json["items"][0]["step"] == 1
    assert sorted(path.name for path in Path(run).glob("step-*")) == ["step-00000002", "step-00000003"]
    assert (
        holdfast("-C", run, "prune", "--keep-last", "1", "--yes").out == "Nothing to delete: all 2 checkpoints stay\n"
    )
    told = holdfast("-C", run, "prune", "--keep-last", "1", "--yes", "--json").json
    assert (told["items"], told["pruned"]) == ([], None)


@pytest.mark.parametrize("words", [["log"], ["show", "2"], ["diff", "1", "3"], ["usage"], ["verify"]], ids=" ".join)
def test_a_folder_after_the_command_is_the_same_as_with_c(holdfast: Program, run: str, words: list[str]) -> None:
    assert holdfast(words[0], run, *words[1:], "--json") == holdfast("-C", run, *words, "--json")
    twice = holdfast("-C", run, words[0], run if words[0] in ("log", "usage", "verify") else "s3://x/y")
    assert twice.code == 2 and "twice" in twice.err


def test_log_goes_on_where_the_last_page_ended(holdfast: Program, run: str) -> None:
    first = holdfast("log", run, "-n", "2", "--json").json
    rest = holdfast("log", run, "-n", "2", "--before", first["next"], "--json").json
    assert [[each["step"] for each in page["items"]] for page in (first, rest)] == [[3, 2], [1]]
    assert rest["next"] is None
    holdfast("rm", run, "2", "--yes")
    after = holdfast("log", run, "--before", first["next"], "--json").json
    assert [each["step"] for each in after["items"]] == [1]
    assert holdfast("log", run, "--before", "soon").code == 2


def test_log_reads_no_manifest_that_it_does_not_show(holdfast: Program, run: str) -> None:
    Path(run, "step-00000001", "manifest.json").write_text("damaged")
    shown = holdfast("log", run, "-n", "2", "--json").json
    assert ([each["step"] for each in shown["items"]], shown["broken"]) == ([3, 2], [])
    rest = holdfast("log", run, "--before", shown["next"])
    assert rest.code == 0 and "broken:" in rest.err and "step-00000001" in rest.err


def test_a_pinned_step_survives_and_a_deleted_one_is_gone(holdfast: Program, run: str) -> None:
    assert holdfast("pin", run, "1").out == "1  pinned\n"
    assert holdfast("pin", run, "1").out == "1  already pinned\n"
    assert holdfast("prune", run, "--keep-last", "1", "--yes").out == "Nothing to delete: all 3 checkpoints stay\n"
    asked = holdfast("rm", run, "1")
    assert asked.code == 6 and "pinned" in asked.err
    assert holdfast("rm", run, "1", "latest", "--yes").out == "Deleted 1, 3\n"
    assert holdfast("show", run, "--json").json["checkpoint"]["step"] == 2
    assert Path(run, ".holdfast", "pins.json").read_text().endswith("[]}\n")
    Path(run, "step-00000002", "notes.txt").write_text("mine")
    assert holdfast("rm", run, "2", "--yes").code == 6
    assert Path(run, "step-00000002", "notes.txt").exists()


def test_bytes_have_no_numeric_difference(holdfast: Program, tmp_path: Path) -> None:
    from holdfast.training import save_checkpoint

    for step in (1, 2):
        state = {"wide": torch.full((3,), float(step), dtype=torch.complex128), "plain": torch.full((3,), float(step))}
        save_checkpoint(tmp_path, step, state, rng=False)
    found = holdfast("-C", str(tmp_path), "diff", "1", "2", "--json").json["changes"]
    assert [(each["name"], each["max_change"]) for each in found] == [("plain", 1.0), ("wide", None)]


def test_prune_deletes_no_more_than_it_showed(holdfast: Program, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.cli import context
    from holdfast.training import save_checkpoint

    def saved_meanwhile(self: object, question: str, *, yes: bool) -> None:
        save_checkpoint(run, 4, {})

    monkeypatch.setattr(context.App, "confirm", saved_meanwhile)
    assert holdfast("-C", run, "prune", "--keep-last", "1").out == "1 checkpoint deleted\n"
    assert sorted(path.name for path in Path(run).glob("step-*")) == [f"step-0000000{step}" for step in (2, 3, 4)]


def test_a_marker_that_makes_no_sense_lets_nothing_be_pruned(holdfast: Program, run: str) -> None:
    Path(run, "best.json").write_text('{"schema_version": 1, "metric": 5, "mode": "min"}')
    shown = holdfast("-C", run, "prune", "--keep-last", "1", "--dry-run")
    assert "Nothing to delete" in shown.out
    assert "so the best checkpoint is unknown" in shown.out
