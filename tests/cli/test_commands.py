"""Each command does its job and says so in the right words on the right stream."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast import Workspace
from holdfast.serde import Registry
from holdfast.workspace.capture.scanner import Scanner
from unprivileged import unprivileged

Write = Callable[[str, str], Path]


def test_init_creates_a_store_outside_and_no_checkpoint(holdfast, project, tmp_path):
    ran = holdfast("init")
    assert ran.code == 0
    assert str(project) in ran.out and str(tmp_path / "state") in ran.out
    assert "holdfast save" in ran.err
    assert holdfast("log", "--json").json["items"] == []


def test_init_twice_says_that_there_is_a_store_already(holdfast):
    holdfast("init")
    assert "already" in holdfast("init").out


def test_init_with_save_makes_a_first_checkpoint(holdfast):
    assert holdfast("init", "--save").code == 0
    assert len(holdfast("log", "--json").json["items"]) == 1


def test_save_prints_the_short_id_and_how_much_changed(holdfast, write: Write):
    first = holdfast("save", "first")
    write("a.txt", "two\n")
    second = holdfast("save", "second")
    assert (first.code, second.code) == (0, 0)
    assert first.out.startswith("a1  ") and "saved" in first.out
    assert second.out == "a2  1 file changed\n"


def test_save_of_an_unchanged_folder_names_the_checkpoint(holdfast):
    holdfast("save")
    again = holdfast("save")
    assert again.out.startswith("a1  nothing changed")
    assert holdfast("save", "--json").json["new"] is False
    assert holdfast("save", "--json", "--allow-empty").json["new"] is True


def test_save_after_a_restore_says_that_latest_is_another_one(holdfast, write: Write):
    holdfast("save", "first")
    write("app.py", "changed\n")
    holdfast("save", "second")
    assert "latest" not in holdfast("save").err
    holdfast("restore", "a1", "--yes")
    again = holdfast("save")
    assert again.out.startswith("a1  nothing changed") and "`latest` is a2" in again.err


def test_save_keeps_every_field_that_is_given(holdfast, tmp_path):
    talk = tmp_path / "talk.json"
    talk.write_text('[{"role": "user", "content": "größer"}]')
    holdfast.saved(
        *["-m", "msg", "--name", "good", "--pin", "--session", "s1", "--actor", "me", "--step", "3"],
        *["--meta", "ticket=42", "--meta", "eq=a=b", "--state", f"conversation={talk}"],
    )
    shown = holdfast("show", "good", "--json").json["checkpoint"]
    assert (shown["message"], shown["name"], shown["pinned"]) == ("msg", "good", True)
    assert (shown["session"], shown["actor"], shown["step"]) == ("s1", "me", 3)
    assert shown["metadata"] == {"ticket": "42", "eq": "a=b"}
    assert shown["state_names"] == ["conversation"]
    assert holdfast("show", "good", "--state", "conversation").json == [{"role": "user", "content": "größer"}]


def test_state_can_come_from_stdin(holdfast):
    assert holdfast.spawn("save", "--state", "plan=-", stdin=b'{"step": 1}').code == 0
    assert holdfast("show", "--state", "plan").json == {"step": 1}


def test_save_from_inside_a_workspace_saves_the_whole_of_it(holdfast, project, monkeypatch):
    holdfast("init")
    monkeypatch.chdir(project / "src")
    holdfast("save")
    assert "a.txt" in holdfast("show", "--json").json["checkpoint"]["files_changed"]


def test_save_without_any_store_above_takes_the_current_folder(holdfast, project, monkeypatch):
    monkeypatch.chdir(project / "src")
    holdfast("save")
    assert holdfast("where", "--json").json["workspace"] == str(project / "src")


def test_few_excluded_files_are_named_and_many_counted(holdfast, write: Write):
    write("big.bin", "x")
    ran = holdfast("save", "--exclude", "*.bin")
    assert ran.code == 0
    assert "\nbig.bin excluded by rules; reasons: " in ran.err
    assert "big.bin" in holdfast("show", "--uncovered").out
    for number in range(3):
        write(f"{number}.bin", "x")
    assert holdfast("save", "--exclude", "*.bin", "--verbose").err.startswith("4 paths excluded by rules; list with: ")


def test_what_is_left_out_is_said_once(holdfast, write: Write):
    write("big.bin", "x")
    assert "big.bin excluded by rules" in holdfast("save", "--exclude", "*.bin").err
    assert holdfast("save", "--exclude", "*.bin").err == ""
    write("a.txt", "two\n")
    assert holdfast("save", "--exclude", "*.bin").err == ""
    write("other.bin", "x")
    write("a.txt", "three\n")
    assert holdfast("save", "--exclude", "*.bin").err.startswith("other.bin excluded by rules; reasons: ")
    write("a.txt", "four\n")
    assert "big.bin, other.bin excluded by rules" in holdfast("--verbose", "save", "--exclude", "*.bin").err


def test_unreadable_file_is_named_and_exits_incomplete(holdfast, write: Write):
    write("locked", "x").chmod(0)
    ran = unprivileged(lambda: holdfast("save"))
    assert ran.code == 8
    assert "locked" in ran.err and "unreadable" in ran.err
    assert "incomplete" in holdfast("log").out


def test_log_lists_newest_first_and_says_when_there_are_more(holdfast, write: Write):
    for n in range(4):
        write("a.txt", f"{n}\n")
        holdfast("save", f"message {n}\nsecond line", "--actor", "me", "--session", f"s{n % 2}")
    ran = holdfast("log", "-n", "2", "--flat")
    lines = ran.out.splitlines()
    assert [line.split()[0] for line in lines] == ["id", "a4", "a3"]
    assert "message 3" in lines[1] and "second line" not in ran.out
    assert "more" in ran.err
    everything = holdfast("log", "-n", "0", "--flat")
    assert len(everything.out.splitlines()) == 5 and not everything.err
    assert [entry["short_id"] for entry in holdfast("log", "--session", "s0", "--json").json["items"]] == [
        "a3",
        "a1",
    ]


def test_log_shows_safety_checkpoints_only_when_asked(holdfast, write: Write):
    holdfast("save")
    write("a.txt", "two\n")
    holdfast("restore", "latest", "--yes")
    assert len(holdfast("log", "--json").json["items"]) == 1
    everything = holdfast("log", "--json", "--all").json["items"]
    assert everything[0]["operation"]["verb"] == "restore"
    assert "before restore to a1" in holdfast("log", "--all").out
    assert "before restore to a1" in holdfast("show", "a2").out


def test_save_says_what_changed_if_no_file_did(holdfast, project):
    holdfast("save")
    (project / "src").chmod(0o711)
    assert holdfast("save").out == "a2  no files changed, only times or modes of 1 path\n"


def test_show_names_what_is_not_saved_or_counts_it(holdfast, write: Write):
    write("node_modules/x/index.js", "1\n")
    holdfast("save")
    assert re.search("^not saved +node_modules: dependencies$", holdfast("show").out, re.MULTILINE)
    for number in range(4):
        write(f"package{number}/node_modules/x/index.js", "1\n")
    holdfast("save")
    assert re.search("^not saved +5 paths: dependencies$", holdfast("show").out, re.MULTILINE)


def test_show_names_all_fields_and_the_files_changed(holdfast):
    holdfast("save", "-m", "first line\nsecond line", "--name", "good", "--meta", "k=v")
    out = holdfast("show", "good").out
    for part in ("good", "first line", "second line", '{"k": "v"}', "a.txt", "src/b.py"):
        assert part in out


def test_diff_shows_latest_against_now(holdfast, write: Write):
    holdfast("save")
    write("a.txt", "two\n")
    write("new.txt", "new\n")
    out = holdfast("diff").out
    assert "-one\n" in out and "+two\n" in out and "+new\n" in out
    assert holdfast("diff", "--name-only").out.split() == ["a.txt", "new.txt"]
    stat = holdfast("diff", "--stat").out
    assert stat.splitlines()[1:] == ["M  +1 -1  a.txt", "A  +1 -0  new.txt", "2 files changed, +2 -1"]


def test_diff_between_two_checkpoints_takes_paths_after_dashes(holdfast, write: Write):
    holdfast("save")
    write("a.txt", "two\n")
    write("src/b.py", "print(2)\n")
    holdfast("save")
    assert holdfast("diff", "latest~1", "latest", "--name-only").out.split() == ["a.txt", "src/b.py"]
    assert holdfast("diff", "latest~1", "latest", "--name-only", "--", "src").out.split() == ["src/b.py"]
    assert holdfast("diff", "latest~1", "--name-only", "--", "a.txt").out.split() == ["a.txt"]


def test_diff_without_differences_prints_nothing_on_stdout(holdfast):
    holdfast("save")
    ran = holdfast("diff")
    assert (ran.code, ran.out) == (0, "")
    assert "No differences" in ran.err


def test_diff_says_which_files_differ_only_in_their_times(holdfast, project):
    holdfast("save")
    os.utime(project / "a.txt", ns=(1, 1))
    ran = holdfast("diff")
    assert "a.txt" in ran.err and "metadata" in ran.err


def test_paths_are_meant_from_the_current_folder(holdfast, project, write: Write, monkeypatch):
    holdfast("save")
    write("a.txt", "two\n")
    write("src/b.py", "print(2)\n")
    monkeypatch.chdir(project / "src")
    assert holdfast("diff", "--name-only", "--", "b.py").out.split() == ["src/b.py"]
    assert holdfast("diff", "--name-only", "--", "../a.txt").out.split() == ["a.txt"]
    assert holdfast("restore", "latest", "b.py", "--yes").code == 0
    assert (project / "src/b.py").read_text() == "print(1)\n"
    assert (project / "a.txt").read_text() == "two\n"


def test_restore_looks_at_the_folder_once(holdfast, write: Write, monkeypatch):
    write("a.txt", "one")
    holdfast.saved()
    write("a.txt", "two")
    looks = []
    real = Scanner.take
    monkeypatch.setattr(Scanner, "take", lambda self, *given, **named: looks.append(0) or real(self, *given, **named))
    assert holdfast("restore", "latest").code == 0
    assert len(looks) == 1


def test_restore_dry_run_shows_the_plan_and_touches_nothing(holdfast, project, write: Write):
    holdfast("save")
    write("a.txt", "two\n")
    write("new.txt", "new\n")
    (project / "src/b.py").unlink()
    ran = holdfast("restore", "latest", "--dry-run")
    assert ran.code == 0
    for part in ("bring back 1", "src/b.py", "replace", "    a.txt", "remove 1", "new.txt"):
        assert part in ran.out
    assert (project / "a.txt").read_text() == "two\n"


def test_a_long_plan_is_capped(holdfast, write: Write):
    holdfast("save")
    for n in range(25):
        write(f"new{n:02}.txt", "new\n")
    out = holdfast("restore", "latest", "--dry-run").out
    assert "… and 15 more" in out and "new24" not in out


def test_restore_brings_back_and_undo_and_redo_turn_it_round(holdfast, project, write: Write):
    holdfast("save")
    write("a.txt", "two\n")
    ran = holdfast("restore", "latest", "--yes")
    assert ran.code == 0 and "undo with: holdfast undo" in ran.out
    assert (project / "a.txt").read_text() == "one\n"
    ran = holdfast("undo")
    assert ran.code == 0 and "holdfast redo" in ran.out
    assert (project / "a.txt").read_text() == "two\n"
    assert holdfast("redo").code == 0
    assert (project / "a.txt").read_text() == "one\n"


def test_restore_with_keep_new_leaves_new_files(holdfast, write: Write):
    holdfast("save")
    new = write("new.txt", "new\n")
    write("a.txt", "two\n")
    assert holdfast("restore", "latest", "--keep-new", "--yes").code == 0
    assert new.exists()


def test_restore_of_what_is_there_already_does_nothing(holdfast):
    holdfast("save")
    ran = holdfast("restore", "latest")
    assert ran.code == 0 and "Nothing to restore" in ran.err
    assert holdfast("undo").code == 3


def test_restore_says_where_the_state_is(holdfast, write: Write, tmp_path):
    talk = tmp_path / "talk.json"
    talk.write_text("[1]")
    holdfast("save", "--state", f"conversation={talk}")
    write("a.txt", "two\n")
    assert "--state" in holdfast("restore", "latest", "-y").err
    for _ in range(2):
        write("a.txt", "three\n")
        assert "--state" not in holdfast("restore", "latest").err  # it was said
    write("a.txt", "three\n")
    assert "--state" in holdfast("restore", "latest", "--verbose").err


def test_without_terminal_and_yes_nothing_is_destroyed(holdfast, project, write: Write):
    holdfast("save")
    write("a.txt", "two\n")
    ran = holdfast.spawn("rm", "latest")
    assert ran.code == 6 and "--yes" in ran.err
    assert (project / "a.txt").read_text() == "two\n"
    assert len(holdfast("log", "--json").json["items"]) == 1


def test_rm_deletes_what_was_named_before_anything_moved(holdfast, write: Write):
    ids = []
    for n in range(3):
        write("a.txt", f"{n}\n")
        ids.append(holdfast.saved())
    ran = holdfast("rm", "latest", "latest~1", ids[2], "--yes")
    assert ran.code == 0 and ran.out == "Deleted a3, a2\n"
    assert [entry["id"] for entry in holdfast("log", "--json").json["items"]] == ids[:1]


def test_rm_with_one_unknown_reference_deletes_nothing(holdfast):
    holdfast("save")
    assert holdfast("rm", "latest", "nonsense", "--yes").code == 3
    assert len(holdfast("log", "--json").json["items"]) == 1


def test_verify_of_a_sound_store_says_so(holdfast):
    holdfast("save")
    ran = holdfast("verify")
    assert ran.code == 0 and ran.out.startswith("no damage: read 1 checkpoint,")


def test_where_names_workspace_store_and_size(holdfast, project, tmp_path):
    holdfast("save")
    out = holdfast("where").out
    assert str(project) in out and str(tmp_path / "state") in out and "KiB" in out


def test_a_chosen_folder_and_store_are_used(holdfast, project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = ["-C", str(project), "--store", str(tmp_path / "elsewhere")]
    assert holdfast(*place, "save").code == 0
    assert holdfast(*place, "where", "--json").json["store"] == str(tmp_path / "elsewhere")
    assert not (tmp_path / "state").exists()


def test_only_init_and_save_make_a_store(holdfast, project, tmp_path):
    for args in ("log", "show", "diff", "restore latest", "undo", "redo", "rm latest -y", "verify", "where"):
        ran = holdfast(*args.split())
        assert ran.code == 3, args
        assert f"{project} has no checkpoints yet" in ran.err and "holdfast save" in ran.err
    assert not list((tmp_path / "state").rglob("*"))


def test_interrupted_restore_is_reported_at_the_next_command(capsys):
    from holdfast.cli.context import App
    from holdfast.model import Recovery

    class Opened:
        recovered = Recovery("restore", "a1-abcdefgh", "finished", "a2-abcdefgh", {"x\ny": "gone"})

    app = App(json=True)
    app._workspace = Opened()
    app.tell_recovered()
    app.tell_recovered()
    app.document({})
    said = capsys.readouterr()
    assert said.err.count("interrupted") == 1
    assert "An interrupted restore to a1 was finished; what was found is kept in a2." in said.err
    assert "x\\ny" in said.err
    assert json.loads(said.out)["recovered"]["outcome"] == "finished"


def test_a_restore_cut_short_before_it_began_kept_nothing(capsys):
    from holdfast.cli.context import App
    from holdfast.mcp.results import recovery
    from holdfast.model import Recovery

    class Opened:
        recovered = Recovery("restore", "a1-abcdefgh", "rolled back", "", {})

    app = App()
    app._workspace = Opened()
    app.tell_recovered()
    assert "to a1 was rolled back; it had changed nothing." in capsys.readouterr().err
    assert recovery(Opened.recovered).endswith("was rolled back; it had changed nothing.")


def test_the_store_of_a_folder_above_is_found_from_inside_it(holdfast, project, tmp_path, monkeypatch):
    place = ["--store", str(tmp_path / "elsewhere")]
    holdfast(*place, "save")
    monkeypatch.chdir(project / "src")
    assert holdfast(*place, "where", "--json").json["workspace"] == str(project)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    ran = holdfast(*place, "log")
    assert ran.code == 6 and str(project) in ran.err


def test_empty_checkpoint_exits_incomplete(holdfast):
    ran = holdfast("save", "--exclude", "*")
    assert ran.code == 8 and ran.out.startswith("a1") and "nothing-held" in ran.err
    assert "incomplete" in holdfast("log").out


@dataclass
class Basket:
    items: tuple[str, ...]


def test_tagged_state_is_shown_and_breaks_nothing(holdfast, project, tmp_path):
    registry = Registry()
    registry.add(Basket, "shop.Basket")
    holdfast("save")
    store = holdfast("where", "--json").json["store"]
    ws = Workspace(project, store=store, registry=registry)
    saved = ws.save("talk", state={"talk": [Basket(("tea",))], "looks": {"$tuple": [1]}}, allow_empty=True)
    shown = holdfast("show", saved.id, "--state", "talk")
    assert shown.json == [{"$object": ["shop.Basket", 1, {"items": {"$tuple": ["tea"]}}]}]
    assert "tag" in shown.err
    assert "tag" not in holdfast("show", saved.id, "--state", "looks").err
    said = holdfast("show", saved.id, "--json").json["checkpoint"]
    assert (said["state_names"], said["tagged_states"]) == (["looks", "talk"], ["talk"])
    (project / "new.txt").write_text("x")
    restored = holdfast("restore", saved.id, "-y", "--json").json["restored"]
    assert restored["tagged_states"] == ["talk"]
    assert holdfast("undo", "--json").json["restored"]["ok"]
    forked = holdfast("fork", saved.id, str(tmp_path / "fork"), "--json").json["forked"]
    fork = Workspace(forked["directory"], store=forked["store"], registry=registry)
    assert fork.get("latest").state == {"talk": [Basket(("tea",))], "looks": {"$tuple": [1]}}
