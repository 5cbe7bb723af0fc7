"""`holdfast index`: an index that a project's configuration describes."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from docs.pages import documented

if TYPE_CHECKING:
    from .conftest import Program

MODEL = """
import os, pathlib, zlib

def embed(texts):
    limit = os.environ.get("MODEL_KILLS_AFTER")
    with open(pathlib.Path(__file__).with_name("calls.log"), "a") as log:
        log.write(f"{len(texts)}\\n")
    if limit and sum(map(int, open(pathlib.Path(__file__).with_name("calls.log")))) > int(limit):
        os.kill(os.getpid(), 9)
    return [vector(text) for text in texts]

def vector(text):
    found = [0.01] + [0.0] * 63
    for word in text.lower().split():
        found[zlib.crc32(word.strip(".,").encode()) % 64] += 1
    return found
"""
CONFIG = """
[index]
include = ["*.md"]
chunk_size = 200
{more}
[index.embed.dense]
call = "words:embed"
model = "words-1"
batch_size = 2
{price}
"""


@pytest.fixture
def index(holdfast: Program, write, monkeypatch: pytest.MonkeyPatch) -> Program:
    """A project with an index of three documents, which is yet to be made."""
    monkeypatch.delitem(sys.modules, "words", raising=False)
    write("words.py", MODEL)
    configure(holdfast.project)
    write("docs/cats.md", "Cats purr and sleep.")
    write("docs/rain.md", "Rain falls on the roof.")
    write("docs/bread.md", "Bread is baked in an oven.")
    return holdfast


def configure(project: Path, *, more: str = "", price: str = "usd_per_mtok = 0") -> None:
    (project / "holdfast.toml").write_text(CONFIG.format(more=more, price=price))


def sent(project: Path) -> int:
    """How many texts the model was sent."""
    log = project / "calls.log"
    return sum(map(int, log.read_text().split())) if log.exists() else 0


def test_one_command_makes_an_index_and_a_search_answers(index: Program) -> None:
    done = index("index", "apply")
    assert (done.code, done.out) == (0, "3 documents published, 3 chunks embedded\n")
    found = index("index", "search", "cats that purr", "--json").json["items"]
    assert found[0]["document"] == "docs/cats.md"
    shown = index("index", "search", "the roof", "-n", "1")
    assert "docs/rain.md#0" in shown.out
    assert "Rain falls on the roof." in shown.out
    assert index("index", "apply").out == "0 documents published, 0 chunks embedded\n"


def test_looking_makes_nothing(index: Program) -> None:
    before = sorted(index.project.rglob("*"))
    for command in (["plan"], ["plan", "--json"], ["status"], ["explain", "docs/cats.md"], ["search", "x"], ["verify"]):
        index("index", *command)
    made = {path.name for path in index.project.rglob("*")} - {path.name for path in before}
    assert made <= {"__pycache__", "calls.log"} | {path.name for path in index.project.glob("__pycache__/*")}
    assert sent(index.project) <= 1, "the query of the search"


def test_unreadable_differs_from_failed_by_the_model(index: Program, write) -> None:
    write("docs/zero.md", "\0")
    done = index("index", "apply")
    assert done.code == 8
    assert "1 document cannot be indexed" in done.err
    assert "--retry-failed" not in done.err


def test_a_search_that_cannot_be_answered_is_said(index: Program) -> None:
    assert index("index", "search", "cats").code == 3
    index("index", "apply")
    assert index("index", "search", " ").code == 6
    assert index("index", "search", "cats", "--channel", "sparse").code == 3
    (index.project / "words.py").write_text("def embed(texts):\n    raise RuntimeError('no key')\n")
    refused = index.spawn("index", "search", "cats")
    assert (refused.code, "no key" in refused.err) == (7, True)


def test_a_plan_calls_no_model_and_says_what_an_apply_does(index: Program) -> None:
    plan = index("index", "plan", "--json").json["plan"]
    assert (plan["to_embed"], plan["counts"]["new"], sent(index.project)) == (3, 3, 0)
    assert "3 new" in index("index", "plan").out
    assert index("index", "apply", "--json").json["applied"]["embedded"] == 3
    (index.project / "docs/cats.md").write_text("Cats hunt.")
    (index.project / "docs/rain.md").unlink()
    shown = index("index", "plan").out
    assert "1 unchanged, 1 changed, 1 deleted" in shown
    assert "Nothing to do" not in shown


def test_a_plan_that_was_kept_is_carried_out_if_nothing_moved(index: Program, tmp_path: Path) -> None:
    kept = tmp_path / "plan.json"
    kept.write_text(index("index", "plan", "--json").out)
    (index.project / "docs/cats.md").write_text("Cats hunt.")
    assert index("index", "apply", "--plan", str(kept)).code == 4
    kept.write_text(index("index", "plan", "--json").out)
    assert index("index", "apply", "--plan", str(kept)).out == "3 documents published, 3 chunks embedded\n"
    assert index("index", "apply", "--plan", str(kept)).code == 4
    for text, code in (("{", 6), ("[]", 6), ('{"plan": 3}', 6), ('{"plan": {}}', 6), (None, 3)):
        kept.write_text(text) if text else kept.unlink()
        refused = index("index", "apply", "--plan", str(kept))
        assert (refused.code, "hint:" in refused.err) == (code, True)


@pytest.mark.parametrize("price", ["", "usd_per_mtok = 3.0"])
def test_money_is_not_spent_unasked(index: Program, price: str) -> None:
    configure(index.project, price=price)
    refused = index("index", "apply")
    assert (refused.code, sent(index.project)) == (6, 0)
    assert "--yes" in refused.err
    assert index("index", "apply", "--max-embeds", "100").code == 0


def test_a_budget_stops_it_and_the_next_apply_goes_on(index: Program) -> None:
    stopped = index("index", "apply", "--max-embeds", "10")
    assert (stopped.code, "Stopped: the budget is used up" in stopped.err) == (8, True)
    assert index("index", "status", "--json").json["status"]["generation"] is None
    assert "continue with: holdfast index apply" in index("index", "status").out
    assert index("index", "apply").code == 0
    assert index("index", "status", "--json").json["status"]["documents"] == 3


def test_a_killed_apply_loses_one_batch_at_most(index: Program) -> None:
    for number in range(20):
        (index.project / f"docs/{number}.md").write_text(f"Document number {number} says {number * 7}.")
    killed = index.spawn("index", "apply", MODEL_KILLS_AFTER="18")
    assert killed.code == -9
    assert index("index", "apply").code == 0
    assert index("index", "status", "--json").json["status"]["documents"] == 23
    assert sent(index.project) <= 8 + 8 + 23 + 2  # the canaries of both runs, every chunk once, and one batch again


def test_a_lost_point_is_found_and_brought_back(index: Program) -> None:
    import sqlite3

    index("index", "apply")
    assert "All 3 points" in index("index", "verify").out
    with sqlite3.connect(index.project / ".holdfast-index/vectors.db") as db:
        db.execute("DELETE FROM point WHERE document = 'docs/cats.md'")
    db.close()
    broken = index("index", "verify")
    assert (broken.code, "docs/cats.md" in broken.out, "--repair" in broken.err) == (5, True, True)
    assert index("index", "verify", "--repair", "--json").json["report"]["ok"] is True
    assert index("index", "verify").code == 0


def test_a_change_of_the_stored_numbers_can_be_rolled_back(index: Program) -> None:
    index("index", "apply")
    assert index("index", "rollback", "--yes").code == 3
    configure(index.project, price="usd_per_mtok = 0\ndimension = 32")
    lossy = index("index", "apply")
    assert (lossy.code, "--accept-loss" in lossy.err) == (6, True)
    before = sent(index.project)
    assert index("index", "apply", "--accept-loss").code == 0
    assert sent(index.project) == before
    assert index("index", "rollback").code == 6
    assert "is live" in index("index", "rollback", "--yes").out


def test_another_chunker_is_built_beside_unless_asked(index: Program, tmp_path: Path) -> None:
    index("index", "apply")
    configure(index.project, more="chunk_overlap = 10")
    assert "a new index is built" in index("index", "plan").out
    assert "old and new chunks until then" in index("index", "plan", "--in-place").out
    kept = tmp_path / "plan.json"
    kept.write_text(index("index", "plan", "--in-place", "--json").out)
    for option in ("--in-place", "--retry-failed"):
        refused = index("index", "apply", "--plan", str(kept), option)
        assert (refused.code, option in refused.err) == (2, True)
    assert index("index", "apply", "--plan", str(kept)).code == 0
    assert index("index", "rollback", "--yes").code != 0, "in place there is nothing to go back to"
    configure(index.project)
    assert index("index", "apply").code == 0
    assert index("index", "rollback", "--yes").code == 0


def test_it_says_why_a_document_is_done_again(index: Program) -> None:
    index("index", "apply")
    assert index("index", "explain", "docs/cats.md").out == "docs/cats.md is up to date\n"
    configure(index.project, more="chunk_overlap = 10")
    assert "chunk.settings.overlap was 0 and is 10" in index("index", "explain", "docs/cats.md").out


def test_a_document_that_is_not_there_is_not_found(index: Program) -> None:
    for name, near in [("docs/cat.md", "docs/cats.md"), ("cats.md", "docs/cats.md"), ("no\x1b[31m", "such as docs/")]:
        found = index("index", "explain", name)
        assert (found.code, found.out) == (3, "")
        assert "there is no document" in found.err
        assert near in found.err
        assert "\x1b" not in found.err


def test_checkpoints_leave_the_record_of_what_was_paid_for_alone(index: Program) -> None:
    before = index.saved()
    index("index", "apply")
    index.saved("--allow-empty")
    assert index("restore", before, "--yes").code == 0
    assert index("index", "status", "--json").json["status"]["documents"] == 3
    assert "Nothing to do" in index("index", "plan").out


@pytest.mark.parametrize(
    ("table", "code", "word"),
    [
        ("", 3, "index init"),
        ("index = 3", 6, "index is 3"),
        ("[index]\nchunks = 3", 6, "toml:2: unknown key 'index.chunks'"),
        ("[index]\nchunks = 3", 6, "chunk_size"),
        ("[index]\n[index.embed.a]\nmodel = 'x'\n[index.embed.b]\ndimension = 0", 6, "toml:5: index.embed.b.dimension"),
        ("[index.embed.dense]\ncall = 'words'", 6, "module:function"),
        ("[index]\nstore = 'pinecone'", 6, "'flat', 'lancedb'"),
        ("[index]\nledger = 'mysql://x'", 6, "mysql"),
        ("[index]\nchunk_size = 0", 6, "`int` >= 1"),
        ("[index]\nembed = {}", 6, "toml:2: index.embed is {}"),
        ("[index.embed.dense]\ndimension = 3", 6, "toml:1: index.embed.dense names no model"),
        ("[index.embed.dense]\nmodel = 'gpt-9'", 6, "toml:2: model 'gpt-9' does not exist"),
        ("[index.embed.dense]\ncall = 'nowhere:f'", 6, "nowhere"),
        ("[index.embed.dense]\ncall = 'words:nothing'", 6, "nothing"),
        ("[index.embed.dense]\ncall = 'words:os'", 6, "is not callable"),
        ("[index.embed.dense]\ncall = 'words:embed'\nusd_per_mtok = nan", 6, "dollars"),
        ("[index]\nsource = 'gone'\n[index.embed.dense]\ncall = 'words:embed'", 3, "gone"),
        ("[index", 6, "not TOML"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_said(index: Program, table: str, code: int, word: str) -> None:
    (index.project / "holdfast.toml").write_text(table)
    refused = index("index", "plan")
    assert refused.code == code
    assert word in refused.err
    assert "hint:" in refused.err


def test_init_writes_an_example_after_what_is_there(holdfast: Program, project: Path) -> None:
    (project / "holdfast.toml").write_text("watch = true")
    assert holdfast("index", "init").code == 0
    assert (project / "holdfast.toml").read_text().startswith("watch = true\n\n[index]\n")
    assert holdfast("config", "--check").code == 0
    assert holdfast("index", "init").code == 6
    (project / "holdfast.toml").unlink()
    (project / "pyproject.toml").write_text("[tool.holdfast]\nwatch = true\n")
    assert holdfast("index", "init", "--json").json["file"].endswith("pyproject.toml")
    assert "[tool.holdfast.index.embed.dense]" in (project / "pyproject.toml").read_text()
    assert holdfast("config", "--check").code == 0


def test_init_leaves_links_and_modes_as_they_are(holdfast: Program, project: Path) -> None:
    shared = project / "shared.toml"
    shared.write_text("watch = true\n")
    shared.chmod(0o664)
    (project / "holdfast.toml").symlink_to("shared.toml")
    assert holdfast("index", "init").code == 0
    assert (project / "holdfast.toml").is_symlink()
    assert (shared.stat().st_mode & 0o777, "[index]" in shared.read_text()) == (0o664, True)
    assert sorted(each.name for each in project.iterdir()) == ["a.txt", "holdfast.toml", "shared.toml", "src"]


@pytest.mark.parametrize("store", ["flat", "qdrant", "lancedb", "sqlite-vec", "chroma", "faiss"])
def test_the_example_indexes_markdown_and_python_in_one_command(holdfast: Program, project: Path, store: str) -> None:
    """With the model that comes in a package, in every store."""
    holdfast("index", "init")
    config = project / "holdfast.toml"
    config.write_text(config.read_text().replace('store = "flat"', f'store = "{store}"'))
    (project / "cats.md").write_text("Cats purr and sleep in the sun all day.")
    (project / "rain.md").write_text("Rain falls on the roof and fills the barrel.")
    (project / "src" / "b.py").write_text("def subtract_taxes(salary):\n    return salary * 0.7\n")
    done = holdfast("index", "apply")
    assert (done.code, done.out) == (0, "3 documents published, 3 chunks embedded\n")
    for query, document in (("a sleeping animal", "cats.md"), ("weather and water", "rain.md"), ("income", "src/b.py")):
        assert holdfast("index", "search", query, "-n", "1", "--json").json["items"][0]["document"] == document
    assert "Nothing to do" in holdfast("index", "plan").out
    assert holdfast("index", "verify").code == 0


def test_what_is_printed_as_json_is_as_the_page_says(index: Program) -> None:
    told = documented()
    for name, *words in (
        ("plan",), ("apply",), ("status",), ("verify",), ("explain", "docs/rain.md"), ("search", "rain"),
    ):  # fmt: skip
        assert index("index", name, *words, "--json").json.keys() == told[f"index {name}"], name


def test_progress_on_a_terminal_that_is_resized(index: Program) -> None:
    """The bar is drawn at any width, one column too, and the answer comes out whole."""
    for number in range(40):
        (index.project / f"docs/{number}.md").write_text(f"Document number {number} says {number * 7}.")
    ours, theirs = pty.openpty()
    _resize(theirs, 120)
    process = subprocess.Popen([*index.command, "index", "apply"], stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    seen = b""
    for width in (80, 20, 1, 200):
        seen += os.read(ours, 1)
        _resize(ours, width)
    with pytest.raises(OSError):  # the other end is closed
        while True:
            seen += os.read(ours, 65536)
    assert process.stdout is not None
    assert process.stdout.read() == b"43 documents published, 43 chunks embedded\n"
    assert process.wait() == 0
    process.stdout.close()
    os.close(ours)
    assert b"documents" in seen
    assert b"Traceback" not in seen


def _resize(terminal: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


@pytest.fixture(params=["file", "postgres"])
def ledger(index: Program, request: pytest.FixtureRequest) -> str:
    """The address of the index, whose ledger is where the parameter says."""
    if request.param == "file":
        return f"{index.project}/.holdfast-index"
    url = f"{request.getfixturevalue('postgres_url')}#{index.project.parents[2].name}"
    configure(index.project, more=f"ledger = {json.dumps(url)}")
    return f"index+{url}"


def test_the_general_commands_look_at_the_generations(index: Program, ledger: str) -> None:
    place = ledger
    assert index("index", "apply").code == 0
    page = index("log", place, "--json").json
    assert [(each["generation"], each["state"], each["documents"]) for each in page["items"]] == [(1, "live", 3)]
    assert page["next"] is None
    assert index("-C", place, "log").out.splitlines()[1].split()[:4] == ["1", "live", "3", "3"]
    assert index("diff", place).code == 3
    config = index.project / "holdfast.toml"
    config.write_text(config.read_text().replace("chunk_size = 200", "chunk_size = 10"))  # a new generation
    (index.project / "docs/rain.md").write_text("Rain falls.")
    (index.project / "docs/cats.md").unlink()
    assert index("index", "apply", "--yes").code == 0
    changed = index("diff", place, "--json").json
    assert (changed["before"], changed["after"]) == (1, 2)
    kinds = {each["document"]: each["kind"] for each in changed["changes"]}
    assert kinds["docs/cats.md"] == "removed" and kinds["docs/rain.md"] == "changed"
    first = index("log", place, "-n", "1", "--json").json
    assert (first["next"], index("log", place, "--before", "2", "--json").json["items"][0]["generation"]) == ("2", 1)
    assert index("show", place, "latest", "--json").json["checkpoint"]["documents"] == 2
    assert index("usage", place, "--json").json["texts"] > 0
    refused = index("pin", place, "1")
    assert refused.code == 6 and "log, show, diff, verify, usage, prune, rm" in refused.err
    assert index("show", place, "9").code == 3


def _rebuild(index: Program, sizes: list[int]) -> None:
    """Generations, the last of them live."""
    config = index.project / "holdfast.toml"
    text = config.read_text()
    for size in sizes:
        config.write_text(re.sub("chunk_size = [0-9]+", f"chunk_size = {size}", text))
        assert index("index", "apply", "--yes").code == 0


def _states(index: Program, place: str) -> list[tuple[int, str]]:
    return [(each["generation"], each["state"]) for each in index("log", place, "--json").json["items"]]


def test_general_commands_verify_and_delete_generations(index: Program, ledger: str) -> None:
    place, project = ledger, ("--project", str(index.project)) if ledger.startswith("index+") else ()
    _rebuild(index, [10, 12])
    assert _states(index, place) == [(2, "live"), (1, "kept")]
    report = index("verify", place, *project, "--json").json
    assert report["ok"] and report["points"] == report["compared"] > 3
    said = index("verify", place, *project)
    assert (said.code, said.out.startswith(f"no damage: read {report['points']} points\n")) == (0, True)
    plan = index("prune", place, *project, "--keep-last", "2", "--dry-run", "--json").json
    assert plan["items"] == [] and plan["plan"]["kept"] == {"2": "live", "1": "one of the last 2"}
    for ref in ("2", "live"):
        refused = index("rm", place, *project, ref, "--yes")
        assert refused.code == 6 and "generation 2 cannot be deleted: live" in refused.err
    assert index("prune", place, *project, "--keep-for", "3d", "--yes").code == 6
    pruned = index("prune", place, *project, "--keep-last", "1", "--yes", "--json").json
    assert pruned["pruned"] == {"removed": [1]} and _states(index, place) == [(2, "live")]
    assert index("index", "verify").code == 0
    _rebuild(index, [14])
    assert index("rm", place, *project, "2", "--yes").code == 0
    assert _states(index, place) == [(3, "live")]
    assert index("index", "search", "cats").code == 0


def test_verify_finds_what_the_store_lost(index: Program) -> None:
    place = f"{index.project}/.holdfast-index"
    assert index("index", "apply").code == 0
    (index.project / ".holdfast-index" / "vectors.db").unlink()
    ran = index("verify", place)
    assert (
        ran.code == 5 and "damaged" in ran.out and "cannot return" not in ran.err and "the store was wiped" in ran.out
    )


def test_generations_of_another_index_are_refused(index: Program, tmp_path: Path) -> None:
    place = f"{index.project}/.holdfast-index"
    _rebuild(index, [10, 12])
    other = tmp_path / "other"
    other.mkdir()
    (other / "holdfast.toml").write_text((index.project / "holdfast.toml").read_text())
    for command in (["verify", place], ["prune", place, "--keep-last", "1", "--yes"]):
        ran = index(*command, "--project", str(other))
        assert ran.code == 3 and "nothing is indexed yet" in ran.err
        (other / ".holdfast-index").mkdir(exist_ok=True)
        ran = index(*command, "--project", str(other))
        assert ran.code == 6 and "describes another index" in ran.err
        (other / ".holdfast-index" / "vectors.db").unlink(missing_ok=True)
        (other / ".holdfast-index").rmdir()
    assert _states(index, place) == [(2, "live"), (1, "kept")]


def test_unfinished_index_and_other_stores_keep_generations(index: Program) -> None:
    place = f"{index.project}/.holdfast-index"
    _rebuild(index, [10, 12])
    config = index.project / "holdfast.toml"
    text = config.read_text()
    config.write_text(text.replace("[index]", '[index]\nstore = "sqlite-vec"'))
    plan = index("prune", place, "--keep-last", "0", "--dry-run", "--json").json["plan"]
    assert plan["kept"] == {"2": "live", "1": "in another store"}
    assert index("rm", place, "1", "--yes").code == 6
    config.write_text(text.replace("chunk_size = 12", "chunk_size = 5"))
    (index.project / "calls.log").unlink()
    assert index.spawn("index", "apply", "--yes", MODEL_KILLS_AFTER="9").code == -9  # after the canaries
    assert (3, "building") in _states(index, place)
    ran = index("prune", place, "--keep-last", "0", "--yes")
    assert ran.code == 6 and "not finished" in ran.err and len(_states(index, place)) == 3
