"""`holdfast index`, where a configuration or a model is a trap."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .test_index import configure, index, sent

if TYPE_CHECKING:
    from .conftest import Program

__all__ = ["index"]  # the fixture


@pytest.mark.parametrize("place", [".", "..", "docs", "src"])
def test_folder_with_other_files_is_refused_for_the_index(index: Program, place: str) -> None:
    """What says that git and checkpoints leave it out would have them leave out the project itself."""
    configure(index.project, more=f"directory = {place!r}")
    refused = index("index", "apply")
    assert (refused.code, "hint:" in refused.err) == (6, True)
    assert not (index.project / place / ".holdfastignore").exists()
    assert not (index.project / place / "ledger.db").exists()
    assert sent(index.project) == 0


def test_a_folder_that_was_made_for_the_index_is_taken(index: Program) -> None:
    configure(index.project, more="directory = 'kept/index'")
    (index.project / "kept/index").mkdir(parents=True)
    (index.project / "kept/index/.gitignore").write_text("*\n")  # by a process that was killed right then
    assert index("index", "apply").code == 0
    assert (index.project / "kept/index/.holdfastignore").read_text() == "*\n"
    assert index("index", "verify").code == 0


@pytest.mark.parametrize("store", ["sqlite-vec", "qdrant"])
def test_the_index_does_not_index_itself(index: Program, store: str) -> None:
    configure(index.project, more=f"directory = 'docs/kept'\nstore = '{store}'")
    config = index.project / "holdfast.toml"
    config.write_text(config.read_text().replace('["*.md"]', '["docs/*"]'))
    (index.project / "kept").mkdir()
    (index.project / "docs/other").mkdir()
    (index.project / "docs/other/kept").write_text("A file of that name is a document.")
    assert index("index", "apply").code == 0
    again = index("index", "plan", "--json").json["plan"]
    assert (again["counts"]["unchanged"], again["failures"]) == (4, [])


@pytest.mark.parametrize(
    "module",
    ["import nothing_of_the_kind", "def embed(", "import os\nKEY = os.environ['NO_SUCH_KEY']", "raise SystemExit(3)"],
)
def test_a_module_that_cannot_be_imported_is_named(index: Program, module: str) -> None:
    (index.project / "broken.py").write_text(module)
    (index.project / "holdfast.toml").write_text("[index.embed.dense]\ncall = 'broken:embed'\n")
    refused = index.spawn("index", "plan")
    assert (refused.code, "cannot load broken:embed" in refused.err) == (6, True)


def test_a_model_may_import_its_neighbours_when_it_is_called(index: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    words = index.project / "words.py"
    (index.project / "beside.py").write_text("NUMBER = 0.01\n")
    words.write_text(words.read_text().replace("found = [0.01]", "from beside import NUMBER\n    found = [NUMBER]"))
    assert index("index", "apply").code == 0


def test_a_limit_that_is_no_number_is_no_limit(index: Program) -> None:
    configure(index.project, price="usd_per_mtok = 3.0")
    assert index("index", "apply", "--max-usd", "nan").code == 6
    assert sent(index.project) == 0


def test_a_document_with_two_bad_chunks_is_one_document(index: Program) -> None:
    words = index.project / "words.py"
    words.write_text(words.read_text().replace("found = [0.01]", "found = [float('nan') if 'bad' in text else 0.01]"))
    (index.project / "docs/bad.md").write_text("bad " * 100)
    (index.project / "docs/more.md").write_text("A good one, to have company.")
    assert index.spawn("index", "apply").code == 8
    assert "failed       1 document\n" in index("index", "status").out
    assert "not finite" in index("index", "explain", "docs/bad.md").out


def test_a_model_of_whole_documents_can_be_configured(index: Program) -> None:
    configure(index.project, price="usd_per_mtok = 0\ncontext_scope = 'document'")
    assert index("index", "apply").code == 0
    configure(index.project, price="context_scope = 'book'")
    assert index("index", "plan").code == 6


def test_words_beside_meaning_can_be_configured(index: Program) -> None:
    config = index.project / "holdfast.toml"
    config.write_text(config.read_text() + "[index.embed.words]\nmodel = 'holdfast-hashed-words'\n")
    (index.project / "docs/code.md").write_text("def parse_line(text): ...")
    assert index("index", "apply").code == 0
    hits = index("index", "search", "PARSE line", "--channel", "words", "--json").json["items"]
    assert [each["document"] for each in hits] == ["docs/code.md"]
    assert index("index", "search", "nothing-of-this", "--channel", "words").out == "No matches\n"


def test_a_setting_that_nobody_knows_is_said_to_count(index: Program) -> None:
    from holdfast.cli.commands.index import show_plan
    from holdfast.indexing import FlatStore, IndexRun, Pipeline

    def made(folder: Path, mood: str) -> IndexRun:
        class Chunker:
            version = "1"

            def __init__(self) -> None:
                self.mood = mood

            def __call__(self, text: str) -> list[str]:
                return [text]

        store = FlatStore(folder / "vectors.db")
        pipeline = Pipeline(
            source={"a": "b"}, chunk=Chunker(), embed={"dense": lambda texts: [[1.0]] * len(texts)}, store=store
        )
        return IndexRun(ledger=folder / "ledger.db", pipeline=pipeline)

    with made(index.project, "calm") as run:
        run.apply(run.plan())
    said: list[str] = []
    with made(index.project, "wild") as run:
        show_plan(run.plan(), said.append)
    assert any("mood" in line and "an unknown setting" in line for line in said)


def test_a_name_or_a_question_that_is_no_text_is_answered(index: Program) -> None:
    index("index", "apply")
    with open(os.fsencode(index.project / "docs") + b"/\xff.md", "wb") as file:
        file.write(b"A name that no text has.")
    assert index("index", "apply").code == 0
    assert index("index", "explain", "docs/\udcff.md").out == "docs/\\xff.md is up to date\n"
    assert index("index", "search", "\udcff").code == 6
