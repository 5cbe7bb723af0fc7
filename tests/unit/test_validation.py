"""Arguments of callers are checked once, the same way everywhere."""

from __future__ import annotations

import enum
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import validation
from holdfast.errors import Refused, UnknownOption
from holdfast.validation import check_known, check_place, parameters_of, without_driver

_WRONG: list[tuple[Callable[[Any, str], Any], Any]] = [
    (validation.check_int, True),
    (validation.check_int, 1.0),
    (validation.check_count, -1),
    (validation.check_count, True),
    (validation.check_count, None),
    (validation.check_limit, "5"),
    (validation.check_limit, -1),
    (validation.check_flag, 1),
    (validation.check_text, b"x"),
    (validation.check_text, None),
    (validation.check_optional_text, 5),
    (validation.check_texts, "abc"),
    (validation.check_texts, ["a", 1]),
    (validation.check_texts, {"a"}),
    (validation.check_mapping, [("a", 1)]),
    (validation.check_mapping, {1: 2}),
    (validation.check_path, ""),
    (validation.check_path, None),
    (validation.check_path, "a\0b"),
    (validation.check_path, "half \ud800"),
    (validation.check_patterns, "*.log"),
    (validation.check_patterns, ["a\nb"]),
    (validation.check_patterns, ["a\0b"]),
]


@pytest.mark.parametrize(("check", "value"), _WRONG)
def test_wrong_arguments_are_refused_by_name(check: Callable[[Any, str], Any], value: Any) -> None:
    with pytest.raises(Refused, match=r"^the thing ") as refused:
        check(value, "the thing")
    assert refused.value.hint


def test_right_arguments_come_back() -> None:
    assert validation.check_count(0, "n") == 0
    assert validation.check_count(10**30, "n") == sys.maxsize
    assert validation.check_limit(None) is None and validation.check_limit(3) == 3
    assert validation.check_int(-(10**30), "n") == -(10**30)
    assert validation.check_path(Path("a/b"), "p") == validation.check_path(b"a/b", "p") == "a/b"
    assert validation.check_path(b"\xff", "p") == "\udcff"
    assert validation.check_patterns(("a", "b")) == ["a", "b"]
    assert validation.check_mapping({"a": 1}, "m") == {"a": 1}


@pytest.mark.parametrize("check", [validation.check_count, validation.check_limit])
def test_the_least_count_is_named(check: Callable[..., Any]) -> None:
    with pytest.raises(Refused, match="1 or more"):
        check(0, "n", least=1)


class TestKnownOptions:
    def test_an_unknown_option_is_refused_with_what_is_near(self) -> None:
        with pytest.raises(Refused, match="save has no option 'sesion'") as refused:
            check_known({"sesion": 1}, ["session", "step"], "save")
        assert refused.value.hint == "Did you mean session?"

    def test_else_with_all_there_are(self) -> None:
        with pytest.raises(Refused) as refused:
            check_known({"zzz": 1}, ["b", "a", "_private"], "save")
        assert refused.value.hint == "The options are a, b."

    def test_known_ones_pass(self) -> None:
        check_known({"a": None}, ["a"], "save")
        check_known({}, [], "save")

    def test_parameters_of_a_function(self) -> None:
        def call(self: object, a: int, b: int = 1, *rest: int, c: int, **more: int) -> None:
            local = a
            del local

        assert parameters_of(call) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("~", "/home/me"),
        ("~/x", "/home/me/x"),
        ("./~", "./~"),
        ("a~", "a~"),
        ("/x/~", "/x/~"),
        (Path("~/x"), "/home/me/x"),
    ],
)
def test_tilde_is_the_home_folder(given: object, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert check_place(given, "the folder") == found


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("sqlite+aiosqlite:///a.db", "sqlite:///a.db"),
        ("postgresql+asyncpg://u:p+q@h/d?x=a+b:c", "postgresql://u:p+q@h/d?x=a+b:c"),
        ("postgres+psycopg2://h/d", "postgres://h/d"),
        ("redis+cluster://h", "redis+cluster://h"),
        ("index+postgresql://h/d", "index+postgresql://h/d"),
        ("sqlite:///a+b.db", "sqlite:///a+b.db"),
        ("folder/sqlite+x:y", "folder/sqlite+x:y"),
    ],
)
def test_a_url_without_its_driver(given: str, found: str) -> None:
    assert without_driver(given) == found


CONFIGURING = [
    "flow.Checkpointer",
    "flow.States",
    "importers.ImportRequest",
    "indexing.Channel",
    "indexing.CheckpointManager",
    "indexing.CheckpointSettingsFingerprint",
    "indexing.FlatStore",
    "indexing.FolderSource",
    "indexing.HashedWords",
    "indexing.IndexRun",
    "indexing.IndexingCheckpoint",
    "indexing.Pipeline",
    "indexing.PlainChunker",
    "indexing.Splitter",
    "project.CheckpointManager",
    "project.SyncCheckpointManager",
    "retention.Policy",
    "serde.Envelope",
    "serde.Keys",
    "serde.Registry",
    "serde.Serde",
    "training.CheckpointManager",
    "workspace.CheckpointConfig",
    "workspace.CheckpointService",
    "workspace.Workspace",
]
SURFACES = ("flow", "importers", "indexing", "project", "retention", "serde", "training", "workspace")


def _made(name: str) -> Any:
    module, _, cls = name.rpartition(".")
    return getattr(importlib.import_module(f"holdfast.{module}"), cls)


@pytest.mark.parametrize("name", CONFIGURING)
def test_unknown_keyword_of_a_constructor(name: str) -> None:
    with pytest.raises(UnknownOption, match="has no option 'no_such_option'") as caught:
        _made(name)(no_such_option=1)
    assert isinstance(caught.value, Refused) and isinstance(caught.value, TypeError)
    assert "no_such_option" not in inspect.signature(_made(name)).parameters


def test_nearest_option_is_named() -> None:
    with pytest.raises(UnknownOption, match="Did you mean max_checkpoints"):
        _made("workspace.CheckpointConfig")(max_checkpoint=3)


@pytest.mark.parametrize("surface", SURFACES)
def test_every_public_constructor_names_the_keyword(surface: str) -> None:
    """At the call itself: ours for what configures something, else Python's own."""
    module = importlib.import_module(f"holdfast.{surface}")
    for cls in [getattr(module, name) for name in getattr(module, "__all__", ())]:
        plain = (BaseException, enum.Enum, dict)
        if not inspect.isclass(cls) or issubclass(cls, plain) or inspect.isabstract(cls):
            continue
        if getattr(cls, "_is_protocol", False) or "url" in inspect.signature(cls).parameters:
            continue
        with pytest.raises(TypeError) as caught:
            cls(no_such_option=1)
        is_ours = isinstance(caught.value, UnknownOption)
        depth = len(traceback.extract_tb(caught.value.__traceback__))
        assert is_ours or depth == 1, cls
