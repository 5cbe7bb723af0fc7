"""The harness itself: an engine that breaks an invariant does not get past it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Restored, Workspace

from .harness import Case


class Saboteur:
    """The real engine, with something done after one of its verbs."""

    def __init__(self, engine: Workspace, verb: str, damage: Callable[[], object]) -> None:
        self._engine = engine
        self._verb = verb
        self._damage = damage

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._engine, name)
        if name != self._verb:
            return real

        def spoiled(*words: Any, **options: Any) -> Any:
            answer = real(*words, **options)
            self._damage()
            return answer

        return spoiled


def arranged(case: Case, verb: str, damage: Callable[[], object]) -> str:
    """A situation in which a restore has something to do, under a saboteur."""
    case.write(".gitignore", b"*.log\n")
    checkpoint = case.save()
    case.write("kept.log", b"ignored, made since")
    case.write("README.md", b"edited")
    case.write("new", b"made since")
    case.ws = Saboteur(case.ws, verb, damage)  # type: ignore[assignment]
    return checkpoint.id


DAMAGES: dict[str, tuple[str, str, Callable[[Case], object]]] = {
    "writes outside": ("I1", "restore", lambda case: (case.outside / "file.txt").write_bytes(b"written\n")),
    "makes a file outside": ("I1", "restore", lambda case: (case.area / "made").write_bytes(b"")),
    "touches the outside": ("I1", "restore", lambda case: (case.outside / "secret").touch()),
    "opens a secret outside": ("I1", "restore", lambda case: (case.outside / "secret").chmod(0o644)),
    "undoes badly": ("I2", "undo", lambda case: case.path("new").unlink()),
    "redoes badly": ("I2", "redo", lambda case: case.write("README.md", b"neither")),
    "undoes all but a time": ("I2", "undo", lambda case: case.path("new").touch()),
    "removes what is ignored": ("I3", "restore", lambda case: case.path("kept.log").unlink()),
    "changes what is ignored": ("I3", "restore", lambda case: case.write("kept.log", b"x")),
    "restores wrongly in silence": ("I4", "restore", lambda case: case.write("README.md", b"wrong")),
    "restores a wrong mode": ("I4", "restore", lambda case: case.path("notes.txt").chmod(0o600)),
    "loses a file in silence": ("I4", "restore", lambda case: case.path("notes.txt").unlink()),
    "leaves a file behind": ("I4", "restore", lambda case: case.write(".stage-1", b"")),
    "writes the user's index": ("I5", "restore", lambda case: case.git("add", "-A")),
    "touches the user's git": ("I5", "restore", lambda case: (case.root / ".git" / "config").touch()),
}


@pytest.mark.parametrize(("invariant", "verb", "damage"), DAMAGES.values(), ids=DAMAGES)
def test_an_engine_that_breaks_an_invariant_is_caught(
    case: Case, invariant: str, verb: str, damage: Callable[[Case], object]
) -> None:
    """Nothing here passes because nothing looks."""
    ref = arranged(case, verb, lambda: damage(case))
    with pytest.raises(AssertionError, match=rf"^{invariant}: "):
        case.restore(ref)
    case.reopen()


@pytest.mark.parametrize("damage", ["changes the workspace", "misses a change"])
def test_a_save_that_does_harm_or_misses_something_is_caught(case: Case, damage: str) -> None:
    """Nothing here passes because nothing looks."""
    first = case.save()
    case.write("README.md", b"edited")
    if damage == "misses a change":
        case.ws = Saboteur(case.ws, "none", lambda: None)  # type: ignore[assignment]
        case.ws.__dict__["save"] = lambda *_words, **_options: first
    else:
        case.ws = Saboteur(case.ws, "save", lambda: case.write("README.md", b"x"))  # type: ignore[assignment]
    with pytest.raises(AssertionError, match=r"^I[14]: "):
        case.save()
    case.reopen()


def test_result_with_failures_cannot_be_ok() -> None:
    """`ok` is derived, so that no engine can forget to set it."""
    told = Restored("a1-x", "a2-y", [], [], {}, {"path": "why"}, {}, {}, {}, [])
    assert not told.ok
