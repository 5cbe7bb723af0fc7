"""Every command on every kind of location, and a kind that is one file and one line of the registry."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli import toy_kind
from holdfast.cli.context import App
from holdfast.errors import Refused
from holdfast.flow import Checkpoint, CheckpointMetadata, open_states
from holdfast.location import FOLDER, KINDS, Capability, LocationKind, kind_of, open_location

if TYPE_CHECKING:
    from .conftest import Program

COMMANDS = ("log", "show", "diff", "verify", "usage", "prune", "rm", "pin")
BOX = "toy://box"


@pytest.fixture
def toys() -> Iterator[list[str]]:
    kind = LocationKind("toy", "a box of toys", "cli.toy_kind:ToyLocation", BOX, schemes=frozenset(["toy"]))
    before = KINDS[:]
    KINDS.insert(0, kind)
    toy_kind.STORED[BOX] = ["red car", "blue car", "red boat"]
    toy_kind.PINNED.clear()
    yield toy_kind.STORED[BOX]
    KINDS[:] = before


class TestToyKind:
    def test_log_pages(self, holdfast: Program, toys: list[str]) -> None:
        lines = holdfast("log", BOX).out.splitlines()
        assert [line.split("  ")[0] for line in lines] == ["toy", "red boat", "blue car", "red car"]
        page = holdfast("log", BOX, "-n", "2", "--json").json
        assert ([each["name"] for each in page["items"]], page["next"]) == (["red boat", "blue car"], "blue car")
        rest = holdfast("-C", BOX, "log", "--before", page["next"], "--json").json
        assert ([each["name"] for each in rest["items"]], rest["next"]) == (["red car"], None)
        assert (
            "holdfast log toy://box --colour red -n 1 --before 'red boat'"
            in holdfast("log", BOX, "-n", "1", "--colour", "red").err
        )

    def test_show_and_diff(self, holdfast: Program, toys: list[str]) -> None:
        assert holdfast("show", BOX).out == "toy  red boat\n\nwheels: 4\n"
        assert holdfast("show", BOX, "red car", "--loudly").out.startswith("toy  RED CAR\n")
        assert holdfast("show", BOX, "ball").code == 3
        assert holdfast("diff", BOX, "red car", "blue car").out == '~ name: "red car" → "blue car"\n'

    def test_verify_and_usage(self, holdfast: Program, toys: list[str]) -> None:
        assert holdfast("verify", BOX).out == "no damage: read 3 toys, 10 B\n"
        toys.append("broken bear")
        assert holdfast("verify", BOX).code == 5
        found = holdfast("usage", BOX, "-n", "3", "--json").json
        assert (len(found["items"]), found["more"], found["toys"]) == (3, 1, 4)

    def test_prune_asks_and_deletes_its_plan(self, holdfast: Program, toys: list[str]) -> None:
        assert holdfast("prune", BOX).code == 6
        asked = holdfast("prune", BOX, "--keep-last", "2")
        assert asked.code == 6 and "red car" in asked.err and len(toys) == 3
        assert "Would free about 10 B" in holdfast("prune", BOX, "--keep-last", "2", "--dry-run").out
        assert holdfast("pin", BOX, "red car").out == "red car  pinned\n"
        assert holdfast("prune", BOX, "--keep-last", "2", "--yes").out == "Nothing to delete: all 2 checkpoints stay\n"
        assert holdfast("pin", BOX, "red car", "--off").out == "red car  no longer pinned\n"
        assert holdfast("prune", BOX, "--keep-last", "2", "--yes").out == "1 checkpoint deleted, 10 B freed\n"
        assert toys == ["blue car", "red boat"]

    def test_rm(self, holdfast: Program, toys: list[str]) -> None:
        assert holdfast("rm", BOX, "red car").code == 6 and len(toys) == 3
        assert holdfast("rm", BOX).code == 2
        assert holdfast("rm", BOX, "red car", "ball", "--yes").code == 3 and len(toys) == 3
        assert holdfast("rm", BOX, "red car", "blue car", "--yes").out == "Deleted red car, blue car\n"
        assert toys == ["red boat"]

    def test_options_of_a_kind_are_in_its_help_only(
        self, holdfast: Program, toys: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert "--colour" not in holdfast("log", "--help").out
        assert "--colour" in holdfast("log", BOX, "--help").out
        assert "--colour is for a box of toys, such as toy://box" in holdfast("log", "--colour", "red").err
        assert holdfast("show", BOX, "--colour", "red").code == 2
        assert holdfast("log", BOX, "--actor", "me").code == 2
        monkeypatch.setenv("TOY_COLOUR", "blue")
        for words in (["log", BOX], ["-C", BOX, "log"]):  # with click, and without
            assert len(holdfast(*words, "--json").json["items"]) == 1

    def test_what_a_kind_cannot_do_is_refused(
        self, holdfast: Program, toys: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(toy_kind.ToyLocation, "capabilities", frozenset([Capability.LIST, Capability.GET]))
        for words in (["prune", BOX, "--keep-last", "1", "-y"], ["rm", BOX, "red car", "-y"], ["pin", BOX, "red car"]):
            ran = holdfast(*words)
            assert ran.code == 6 and "Possible are: log, show." in ran.err, words
        assert len(toys) == 3 and not toy_kind.PINNED

    def test_a_folder_kind_is_known_by_its_files(self, holdfast: Program, tmp_path: Path, toys: list[str]) -> None:
        KINDS[0] = KINDS[0]._replace(files=("toys.txt",))
        box = tmp_path / "box"
        box.mkdir()
        (box / "toys.txt").touch()
        toy_kind.STORED[str(box)] = ["ball"]
        assert holdfast("log", str(box), "--json").json["items"][0]["name"] == "ball"
        assert holdfast("-C", str(box), "rm", "ball", "--yes").out == "Deleted ball\n"


def test_what_is_stored_is_escaped_on_a_line_of_its_own(holdfast: Program) -> None:
    holdfast.saved("\x1b[31mred\nsecond line", "--session", "s\x1b", "--actor", "me\u202e")
    for words in (["log"], ["show"], ["rm", "latest"], ["usage"]):
        ran = holdfast(*words)
        assert all(char.isprintable() or char == "\n" for char in ran.out + ran.err), words
        assert words == ["show"] or "second line" not in ran.out + ran.err


class TestPlans:
    """A prune deletes nothing that was not shown, whatever is saved while the question is asked."""

    def test_a_folder(self, holdfast: Program, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for text in "123":
            (project / "a.txt").write_text(text)
            holdfast.saved(text)

        def save_meanwhile(self: object, question: str, *, yes: bool) -> None:
            (project / "a.txt").write_text("4")
            holdfast.saved("4")

        monkeypatch.setattr(App, "confirm", save_meanwhile)
        assert holdfast("prune", "--keep-last", "1").out.startswith("2 checkpoints deleted")
        left = [each["message"] for each in holdfast("log", "--json").json["items"]]
        assert left == ["4", "3"]

    def test_a_flow_store(self, holdfast: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        def save(name: str) -> None:
            with open_states("sqlite:///state.db") as states:
                states.save(Checkpoint(CheckpointMetadata(name, "s", toy_kind.NOON, "node", 1), {"n": name}))

        for name in ("c1", "c2", "c3"):
            save(name)
        monkeypatch.setattr(App, "confirm", lambda self, question, *, yes: save("c4"))
        rules = ("--session", "s", "--keep-last", "1")
        assert holdfast("prune", "sqlite:///state.db", *rules).out.startswith("2 checkpoints deleted")
        left = holdfast("log", "sqlite:///state.db", "--session", "s", "--json").json["items"]
        assert [each["checkpoint_id"] for each in left] == ["c4", "c3"]

    def test_rm_in_a_flow_store(self, holdfast: Program) -> None:
        with open_states("sqlite:///state.db") as states:
            for name in ("c1", "c2"):
                states.save(Checkpoint(CheckpointMetadata(name, "s", toy_kind.NOON, "node", 1), {"n": name}))
        assert holdfast("rm", "sqlite:///state.db", "c1").code == 2
        asked = holdfast("rm", "sqlite:///state.db", "c1", "--session", "s")
        assert asked.code == 6 and "s / c1" in asked.err
        assert holdfast("-C", "sqlite:///state.db", "rm", "latest", "--session", "s", "--yes").code == 0
        page = holdfast("-C", "sqlite:///state.db", "log", "--session", "s", "--json").json
        assert ([each["checkpoint_id"] for each in page["items"]], page["next"]) == (["c1"], None)
        assert holdfast("pin", "sqlite:///state.db", "c1", "--session", "s").code == 2


class TestAddress:
    def test_a_folder_is_named_before_or_after(
        self, holdfast: Program, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        holdfast.saved("--name", "one")
        monkeypatch.chdir(project.parent)
        for words in (["log"], ["show"], ["show", "one"], ["verify"], ["diff"]):
            after = holdfast(words[0], f"./{project.name}", *words[1:], "--json")
            assert after.code == 0
            assert after == holdfast("-C", project.name, *words, "--json"), words
        assert holdfast("usage", project.name, "--json").json["items"]
        assert holdfast("pin", f"./{project.name}", "one").code == 0
        assert holdfast("rm", f"./{project.name}", "one", "--yes").code == 0
        assert holdfast("log", project.name, "--json").json == {"items": [], "next": None, "turns": []}

    def test_a_name_is_no_folder_where_both_exist(self, holdfast: Program, project: Path) -> None:
        holdfast.saved("--name", "src")
        assert holdfast("show", "src", "--json").json["checkpoint"]["name"] == "src"
        assert holdfast("show", "./src").out == "b.py\n"  # a path of the workspace

    def test_twice_is_a_usage_error(self, holdfast: Program, project: Path) -> None:
        for command in COMMANDS:
            ran = holdfast("-C", str(project), command, "sqlite:///state.db")
            assert ran.code == 2 and "twice" in ran.err, command
        assert holdfast("--store", "x", "log", "sqlite:///state.db").code == 2

    @pytest.mark.parametrize("command", COMMANDS)
    def test_unknown_word_is_a_usage_error_or_not_found(self, holdfast: Program, command: str) -> None:
        holdfast.saved()
        ran = holdfast(command, "nonsense")
        assert ran.code == (2 if command in ("verify", "usage", "prune") else 3)

    def test_a_scheme_that_nobody_knows(self, holdfast: Program) -> None:
        with pytest.raises(Refused, match="not a kind of location"):
            kind_of("gopher://host")
        assert holdfast("log", "gopher://host").code == 6

    def test_the_kind_of_an_address(self, tmp_path: Path) -> None:
        assert [kind_of(each).name for each in ("sqlite:///a.db", "rediss://h", "s3://b/r", str(tmp_path))] == [
            "flow", "flow", "training", "workspace",
        ]  # fmt: skip
        assert KINDS[-1] is FOLDER


class TestLibrary:
    def test_a_folder(self, holdfast: Program, project: Path) -> None:
        saved = holdfast.saved("one")
        found = open_location(str(project))
        assert found.describe().kind == "workspace"
        page = found.list(1)
        assert ([each.id for each in page.items], page.next) == ([saved], None)
        assert found.get(None).document["id"] == saved

    def test_every_kind_declares_what_it_can_do(self) -> None:
        for kind in KINDS:
            loaded = kind.load()
            assert loaded.capabilities <= set(Capability) and Capability.LIST in loaded.capabilities
            assert all(option.of <= loaded.capabilities for option in loaded.options), kind
            for capability in loaded.capabilities:
                assert hasattr(loaded, {"prune": "plan_prune"}.get(capability, capability))

    def test_nothing_of_a_kind_is_loaded_before_it_is_needed(self) -> None:
        code = (
            "import sys, holdfast.location; print([name for name in sys.modules if name.startswith("
            "('holdfast.workspace', 'holdfast.flow', 'holdfast.training', 'holdfast.indexing'))])"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert ran.stdout == "[]\n"
