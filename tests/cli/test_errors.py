"""Whatever is asked wrongly or goes wrong: one sentence, a hint, the code of the table, never a traceback."""

from __future__ import annotations

import os
import stat

import pytest

import holdfast.cli as cli
from holdfast.cli.exit_codes import Exit, of_error
from holdfast.errors import Conflict, Damaged, HoldfastError, NotFound, Refused, Unavailable


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["show", "nonsense"], 3, "nonsense"),
        (["show", ""], 3, ""),
        (["show", "latest~99"], 3, "latest~99"),
        (["show", "latest~x"], 3, "latest~x"),
        (["show", "a\x1b[2Jb\nc"], 3, "\\x1b[2J"),
        (["show", "latest", "--state", "none"], 3, "none"),
        (["diff", "nonsense"], 3, "nonsense"),
        (["diff", "latest", "nonsense"], 3, "nonsense"),
        (["diff", "--", "no/such/path"], 3, "no/such/path"),
        (["restore", "nonsense", "-y"], 3, "nonsense"),
        (["restore", "latest", "no/such/path", "-y"], 3, "no/such/path"),
        (["rm", "nonsense", "-y"], 3, "nonsense"),
        (["restore", "latest", "../../outside", "-y"], None, "outside"),
        (["undo"], 3, "undo"),
        (["redo"], 3, "redo"),
        (["-C", "no/such/folder", "log"], 3, "no/such/folder"),
        (["-C", "gone\x1b[2J\nfake", "log"], 3, "\\x1b[2J\\nfake"),
        (["-C", "a.txt", "log"], None, "a.txt"),
        (["-C", "/", "init"], 6, "/"),
        (["-C", "..//../", "init"], 6, ""),
        (["--store", "store-inside", "init"], 6, ""),
        (["save", "--name", "taken", "--allow-empty"], 4, "taken"),
        (["save", "--name", "latest", "--allow-empty"], 6, "latest"),
        (["save", "--state", "s=no-such.json"], 3, "no-such.json"),
        (["save", "--state", "s=src"], 7, "src"),
        (["save", "--state", "s=a.txt"], 6, "not JSON"),
        (["save", "--state", "s=nan.json"], 6, "NaN"),
        (["save", "--state", "s=deep.json"], 6, "deep"),
        (["save", "--state", "s=latin1.json"], 6, "not JSON"),
        (["save", "--state", "nothing"], 2, "NAME=FILE.json"),
        (["save", "--meta", "nothing"], 2, "KEY=VALUE"),
        (["save", "--meta", "=x"], 2, "KEY=VALUE"),
        (["save", "--meta", "k=1", "--meta", "k=2"], 2, "twice"),
        (["save", "--step", "x"], 2, "--step"),
        (["save", "one", "-m", "two"], 2, "once"),
        (["save", "one", "two"], 2, "two"),
        (["log", "-n", "-1"], 2, "-1"),
        (["log", "-n", "many"], 2, "many"),
        (["log", "--bogus"], 2, "--bogus"),
        (["restore"], 2, "REF"),
        (["rm"], 2, "REF"),
        (["diff", "latest", "latest", "latest"], 2, "latest"),
        (["diff", "latest", "latest", "b.txt"], 3, "b.txt"),
        (["sav"], 2, "did you mean save?"),
        (["list"], 2, "use: holdfast log"),
        (["rollback"], 2, "use: holdfast restore"),
        (["version"], 2, "use: holdfast --version"),
        (["completion"], 2, "Choose from: bash, zsh, fish"),
        (["\x1b[31m"], 2, "x1b"),
    ],
)
def test_bad_input_gets_a_sentence_a_hint_and_its_code(settled, args, code, says):
    ran = settled(*args)
    assert ran.code not in (0, 1, 130), ran
    assert code is None or ran.code == code, ran
    assert ran.out == ""
    assert ran.err.startswith("error: ") and says in ran.err
    assert len(ran.err.splitlines()) <= 2
    assert "\x1b" not in ran.err
    assert [entry["name"] for entry in settled("log", "--json").json["items"]] == ["taken"]


def test_every_kind_of_error_has_a_code_of_its_own():
    kinds = [NotFound, Conflict, Damaged, Refused, Unavailable]
    assert [of_error(kind("x")) for kind in kinds] == [3, 4, 5, 6, 7]
    assert of_error(HoldfastError("x")) == 70


def test_the_table_in_the_documentation_is_the_table_in_the_code():
    table = {line.split()[0] for line in cli.__doc__.splitlines() if line.strip()[:1].isdigit()}
    assert table == {str(int(code)) for code in Exit}


def test_damage_is_found_by_verify_and_named(holdfast):
    holdfast("save")
    store = holdfast("where", "--json").json["store"]
    packs = [
        os.path.join(parent, name) for parent, _, names in os.walk(store) for name in names if name.endswith(".pack")
    ]
    assert packs
    for pack in packs:
        os.chmod(pack, stat.S_IRUSR | stat.S_IWUSR)
        with open(pack, "r+b") as file:
            file.seek(os.path.getsize(pack) // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 0xFF]))
    ran = holdfast("verify")
    assert ran.code == 5 and ran.out.startswith("damaged") and "affects" in ran.out
    ran = holdfast("verify", "--json")
    assert ran.code == 5 and ran.json["ok"] is False and ran.json["problems"]


def test_the_home_folder_is_refused(holdfast, monkeypatch):
    monkeypatch.chdir(os.environ["HOME"])
    ran = holdfast("save")
    assert ran.code == 6 and "home" in ran.err and "hint:" in ran.err
    assert holdfast("log").code == 6


def test_a_current_folder_that_is_gone_is_an_error_with_a_hint(holdfast, project, monkeypatch):
    gone = project / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    ran = holdfast("log")
    assert ran.code == 3 and "no longer exists" in ran.err


def test_a_bug_is_one_sentence_and_its_place_is_shown_on_request(holdfast, monkeypatch, tmp_path):
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "sitecustomize.py").write_text("import holdfast.cli.context as app\napp.App.open = lambda *a, **k: 1 / 0\n")
    path = f"{trap}{os.pathsep}{os.environ['PYTHONPATH']}"
    ran = holdfast.spawn("log", PYTHONPATH=path)
    assert ran.code == 70 and "this is a bug" in ran.err and "Traceback" not in ran.err
    assert "Traceback" in holdfast.spawn("log", PYTHONPATH=path, HOLDFAST_DEBUG="1").err
    ran = holdfast.spawn("log", "--json", PYTHONPATH=path)
    assert ran.code == 70 and ran.json["error"]["kind"] == "bug"


def test_an_error_of_the_system_is_no_bug(holdfast, tmp_path):
    trap = tmp_path / "trap"
    trap.mkdir()
    body = "def full(*a, **k): raise OSError(28, 'No space left on device', 'x')\napp.App.open = full\n"
    (trap / "sitecustomize.py").write_text("import holdfast.cli.context as app\n" + body)
    ran = holdfast.spawn("log", PYTHONPATH=f"{trap}{os.pathsep}{os.environ['PYTHONPATH']}")
    assert ran.code == 7 and "x: No space left on device" in ran.err


def test_binary_message_is_saved_or_refused(holdfast):
    ran = holdfast.spawn("save", b"caf\xe9 \x1b[31m")
    assert ran.code in (0, 6), ran
    assert holdfast.spawn("log").code == 0
    assert "\x1b" not in holdfast("log").out + holdfast("show").out


def test_huge_message_is_kept_and_shown_short(holdfast):
    message = "| head |\n" + "x" * 100_000
    holdfast("save", "-m", message)
    assert holdfast("show", "--json").json["checkpoint"]["message"] == message
    assert len(holdfast("log").out) < 500
