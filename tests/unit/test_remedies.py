"""Errors carry a remedy, and every face has its own words for each."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

import holdfast
from holdfast.cli.remedies import COMMAND_LINE, hint_of
from holdfast.errors import Conflict, NotFound, Remedy
from holdfast.mcp.remedies import MCP
from holdfast.remedies import LIBRARY, word_hint
from holdfast.web.remedies import PAGE

_SOURCES = Path(holdfast.__file__).parent
_FACES = {
    "cli": "the command line",
    "mcp/remedies.py": "what an agent asks its user to type",
    "web/remedies.py": "what the page tells its user to type",
    "adapters/agents/client.py": "a hook's message to who types commands",
    "adapters/agents/hook.py": "a hook's message to who types commands",
    "adapters/agents/doctor.py": "the report of `holdfast doctor`",
    "adapters/agents/opencode.py": "a comment in a file that `holdfast install` writes",
}
_WRITTEN_FOR_USERS = {
    "workspace/notes/notes_ref.py": "the message of a commit",
    "adapters/agents/slash_commands.py": "a prompt that tells an agent what its user can type",
}
_COMMANDS = "|".join(sorted(path.stem for path in (_SOURCES / "cli" / "commands").glob("[a-z]*.py")))
_COMMAND = re.compile(rf"(?<!git )(?<![\w-])--[a-z][a-z-]+|\bholdfast ({_COMMANDS})\b|(?<!\w)(?<!install )-[A-Z]\b")


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(_SOURCES.rglob("*.py")):
        yield path.relative_to(_SOURCES).as_posix(), ast.parse(path.read_text())


def _remedies() -> Iterator[tuple[str, str, frozenset[str]]]:
    for name, tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Remedy":
                (code,) = node.args
                assert isinstance(code, ast.Constant), f"{name}:{node.lineno}: the code of a remedy is a literal"
                yield f"{name}:{node.lineno}", code.value, frozenset(each.arg or "" for each in node.keywords)


def _arguments(wording: str) -> frozenset[str]:
    return frozenset(field for _, field, _, _ in Formatter().parse(wording) if field)


def _raised_texts() -> Iterator[tuple[str, str]]:
    """The texts in calls of errors, and those named as constants for them."""
    for name, tree in _trees():
        if name.partition("/")[0] in _FACES or name in _FACES:
            continue
        for node in ast.walk(tree):
            is_error = isinstance(node, ast.Call) and any(each.arg == "hint" for each in node.keywords)
            is_raised = isinstance(node, ast.Raise)
            is_constant = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            if is_error or is_raised or (is_constant and re.search("HINT|AGAIN|HOW", ast.unparse(node.targets[0]))):
                for part in ast.walk(node):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield f"{name}:{part.lineno}", part.value


def test_every_face_words_every_remedy() -> None:
    used = {code for _, code, _ in _remedies()}
    assert used == LIBRARY.keys() == COMMAND_LINE.keys() == MCP.keys() == PAGE.keys()


def test_arguments_fit_the_wording() -> None:
    for where, code, arguments in _remedies():
        for table in (LIBRARY, COMMAND_LINE, MCP, PAGE):
            assert _arguments(table[code]) <= arguments, where
        assert _arguments(LIBRARY[code]) == arguments, where


def test_library_names_no_command_and_no_option() -> None:
    found = [f"{where}: {text}" for where, text in _raised_texts() if _COMMAND.search(text)]
    assert not found, "give the error a remedy instead:\n" + "\n".join(found)
    assert not [text for text in LIBRARY.values() if _COMMAND.search(text)]


def test_no_text_of_the_library_names_a_command() -> None:
    """Texts that are no errors, such as notices and what needs attention; predecessors' programs name their own."""
    command = re.compile(rf"\bholdfast ({_COMMANDS})\b")
    found = []
    for name, tree in _trees():
        if name in _FACES or name.partition("/")[0] in (*_FACES, "web", "mcp", "compat") or name in _WRITTEN_FOR_USERS:
            continue
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        told = {id(each.value) for node in ast.walk(tree) if isinstance(node, documented) for each in node.body
                if isinstance(each, ast.Expr)}  # fmt: skip
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
                found += [f"{name}:{node.lineno}: {node.value}"] if command.search(node.value) else []
    assert not found, "give it a remedy instead:\n" + "\n".join(found)


def test_the_scan_sees_commands() -> None:
    for text in ("Run `holdfast verify`.", "Pass --trust-store.", "Search without -E?"):
        assert _COMMAND.search(text)
    assert not _COMMAND.search("Remove it: git --git-dir=")
    assert len(list(_raised_texts())) > 1000


def test_options_of_the_command_line_exist() -> None:
    from holdfast.cli.group import group
    from holdfast.cli.location_command import LocationCommand
    from holdfast.location import KINDS

    known = {"--help"}
    todo = [group]
    while todo:
        command = todo.pop()
        known |= {option for each in command.params for option in each.opts}
        if isinstance(command, LocationCommand):
            known |= {f"--{option.name}" for kind in KINDS for option in command.options_of(kind)}
        for name in getattr(command, "list_commands", lambda _: ())(None):
            todo.append(command.get_command(None, name))  # type: ignore[attr-defined]  # a group has it
    for text in COMMAND_LINE.values():
        assert set(re.findall(r"(?<!\w)--?[a-zA-Z][a-z-]*", text)) <= known, text


def test_each_face_words_the_same_error() -> None:
    error = NotFound("there is no checkpoint 'x'", hint="It was pruned.", remedy=Remedy("list"))
    assert error.hint == "It was pruned. list() shows the checkpoints."
    assert str(error) == "there is no checkpoint 'x'. It was pruned. list() shows the checkpoints."
    assert hint_of(error) == "It was pruned. See `holdfast log`."
    assert word_hint(error, MCP) == "It was pruned. Call checkpoint_list."


@pytest.mark.parametrize("verb", ["restore", "export", "{x}"])
def test_arguments_are_filled_in(verb: str) -> None:
    assert f"to {verb} the rest" in Conflict("x", remedy=Remedy("skip_damaged", verb=verb)).hint


def test_a_remedy_survives_a_process_boundary() -> None:
    error = pickle.loads(pickle.dumps(NotFound("gone", hint="Look.", remedy=Remedy("skip_damaged", verb="restore"))))
    assert "restore the rest" in error.hint and error.message == "gone"


def test_an_error_without_remedy_needs_no_table() -> None:
    assert NotFound("gone", hint="Look again.").hint == "Look again."
    assert str(NotFound("gone")) == "gone"
