"""The registry of model families."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import NotFound, Refused
from holdfast.indexing.model_families import Families, load_families

_MODEL = '[[space]]\nid = "m"\nmembers = [{ name = "x" }]\n'


@pytest.fixture(scope="module")
def families() -> Families:
    return load_families()


def test_a_model_is_found_by_any_of_its_names(families: Families) -> None:
    assert families.same_weights("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2")
    assert not families.same_weights("voyage-4", "voyage-4-lite")
    assert families.find("no-such-model") is None


def test_an_edge_has_a_direction(families: Families) -> None:
    teacher, pupil = "Snowflake/snowflake-arctic-embed-m-v1.5", "MongoDB/mdbr-leaf-ir"
    edge = families.edge(teacher, pupil)
    assert edge is not None
    assert edge.evidence.startswith("https://")
    assert families.edge(pupil, teacher) is None
    assert not families.any_to_any(teacher, pupil)
    assert families.any_to_any("voyage-4-large", "voyage-4-nano")


def test_models_of_two_spaces_have_no_edge(families: Families) -> None:
    assert families.edge("text-embedding-3-small", "text-embedding-3-large") is None
    assert families.edge("voyage-4", "no-such-model") is None


def test_users_add_their_own(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[[space]]\nid = "mine"\ndimensions = [8]\nmembers = [{ name = "my-model", usd_per_mtok = 1 }]\n')
    found = load_families([own]).find("my-model")
    assert found is not None
    assert found[0].dimensions == (8,)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[space]]\nmembers = [{ name = "x" }]', "has no id"),
        ('[[space]]\nid = "voyage-4"', "already"),
        ('[[space]]\nid = "m"\nmembers = [{ name = "voyage-4" }]', "is in the space 'm' and in 'voyage-4'"),
        ('[[space]]\nid = "m"\nmembers = [{ name = "x", aliases = ["x"] }]', "alias of itself"),
        ('[[space]]\nid = "m"\nmembers = [{ name = "x", aliases = ["y"] }, { name = "y", aliases = ["x"] }]', "'y'"),
        (_MODEL + 'edges = [{ documents = "x", queries = "y", evidence = "u" }]', "'y'"),
        (_MODEL + 'edges = [{ documents = "x", queries = "*" }]', "no evidence"),
        ('[[space]]\nid = "m"\ndimensions = [0]', "numbers above 0"),
        ('[[space]]\nid = "m"\ndimensions = [8]\ndefault_dimension = 9', "not one of its dimensions"),
        ('[[space]]\nid = "m"\nkind = "thick"', "one of dense"),
        ('[[space]]\nid = "m"\nmembers = [{ name = "x", usd_per_mtok = -1 }]', "price"),
        ('[[space]]\nid = "m"\nmembers = [{ name = "x", usd_per_mtok = nan }]', "price"),
        ('[[space]]\nid = "m"\nmembers = [{ name = "x", usd_per_mtok = true }]', "price"),
        ('[[space]]\nid = "m"\nmembers = [{ name = "x", aliases = [7] }]', "is not a list of names"),
        ('[[space]]\nid = "m"\nmembers = [{ name = "x", doc_prompt = 7 }]', "invalid doc_prompt 7"),
        ('[[space]]\nid = "m"\nmembers = [{ name = "x", max_tokens = "many" }]', "invalid max_tokens 'many'"),
        ('[[space]]\nid = "m"\nmatryoshka = "yes"', "invalid matryoshka 'yes'"),
        ('[[space]]\nid = "m"\nmetric = "taste"', "invalid metric 'taste'"),
        ('[[space]]\nid = "m"\ndatatypes = "float32"', "is not a list"),
        ('[[space]]\nid = "m"\ndimensions = [true]', "numbers above 0"),
        (_MODEL + 'edges = [{ documents = "x", queries = "*", evidence = 7 }]', "invalid evidence 7"),
        ('[[space]]\nid = "m"\ncolour = "red"', "'colour'"),
        ('[[families]]\nid = "m"', "'families'"),
        ("this is not toml", "is not TOML"),
    ],
)  # fmt: skip
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str, says: str) -> None:
    own = tmp_path / "own.toml"
    own.write_text(text)
    with pytest.raises(Refused) as caught:
        load_families([own])
    assert says in str(caught.value)
    assert "own.toml" in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="family file"):
        load_families([tmp_path / "none.toml"])
