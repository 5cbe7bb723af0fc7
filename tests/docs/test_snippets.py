"""Every example in the documentation is run, and what it says comes out is what comes out.

Blocks of a page share a folder, a namespace and an environment, and run in order.

    python   run as it stands; `expression  # → value` must give that value
    console  every `$` line must end with 0, or with N where it says `# exits N`, and must print what follows it, where
             `…` stands for anything; a line that begins with `> ` goes on with the command before it
    others   not run

A block with a title is not run: it is saved as the file of that name, in the folder where the page is. In tutorials and
how-to pages a `cd` lasts until the next one, as in the reader's own shell; elsewhere each block begins at the top.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .pages import ROOT, Block, Page, pages

_SHOWN = re.compile(r"^(\S.*?) +# → (.+)$", re.MULTILINE)
_EXITS = re.compile(r" +# exits (\d+)$")
_MARK = "-- end of command --"
_EXTRAS = re.compile(
    r"^ *(?:import|from) (?:torch|agents|claude_agent_sdk|lightning|praisonaiagents|pydantic_ai|transformers)\b", re.M
)


def _marked() -> list[Any]:
    """The pages; those whose examples need a package that `make test` does not install are marked."""
    return [pytest.param(page, marks=[pytest.mark.extras] if _EXTRAS.search(page.text) else []) for page in pages()]


@pytest.mark.filterwarnings(r"ignore:holdfast\.compat:DeprecationWarning")  # what migrating.md shows
@pytest.mark.parametrize("page", _marked(), ids=repr)
def test_every_example_runs_and_gives_what_it_says(page: Page, folder: Path) -> None:
    names: dict[str, Any] = {"__name__": "example", "shown": _shown}
    environ = dict(os.environ)
    is_lesson = page.path.parent.name in ("tutorials", "how-to")
    here = folder
    for block in page.blocks():
        if block.title:
            (here / block.title).parent.mkdir(parents=True, exist_ok=True)
            (here / block.title).write_text(block.text, "utf-8")
        elif block.language == "python":
            _run_python(page, block, names)
        elif block.language == "console":
            environ = _run_console(page, block, environ, here)
            if is_lesson:
                here = Path(environ["PWD"])
                os.chdir(here)


def test_an_example_is_found_in_the_readme_and_in_the_pages() -> None:
    """The patterns above still match something."""
    languages = {repr(page): {block.language for block in page.blocks()} for page in pages()}
    assert {"python", "console"} <= languages["README.md"]
    assert "console" in languages["docs/internals/format.md"]
    assert len(languages) >= 20


def _run_python(page: Page, block: Block, names: dict[str, Any]) -> None:
    source = _SHOWN.sub(lambda match: f"shown({match[1]}, {match[2]!r})", block.text)
    code = compile("\n" * (block.line - 1) + source, str(page.path), "exec", dont_inherit=True)  # as a reader runs it
    exec(code, names)


def _shown(value: object, expected: str) -> None:
    assert repr(value) == expected


def _run_console(page: Page, block: Block, environ: dict[str, str], folder: Path) -> dict[str, str]:
    """Run the commands of a block in one shell; what it exported is there for the next."""
    commands, expected = _commands(block)
    script = ["exec 2>&1"]
    for command, code in commands:
        script.append(f"{command}\nstatus=$?; echo '{_MARK}'; [ $status = {code} ] || exit 99")
    script.append('env -0 > "$HOME/.environ"')
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", "\n".join(script)],
        cwd=folder, env=environ, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, check=False,
    )  # fmt: skip
    printed = done.stdout.split(f"{_MARK}\n")
    where = f"{page!r}, line {block.line}"
    assert done.returncode == 0, f"{where}: {commands[len(printed) - 2][0]}\n{printed[-2] if printed[1:] else printed}"
    for (command, _), wanted, found in zip(commands, expected, printed, strict=False):
        pattern = ".*?".join(map(re.escape, wanted.split("…")))
        assert re.fullmatch(pattern, found, re.DOTALL), f"{where}: {command}\nwanted:\n{wanted}\nfound:\n{found}"
    return _environ_after(Path(environ["HOME"]) / ".environ")


def _commands(block: Block) -> tuple[list[tuple[str, int]], list[str]]:
    """The commands with their exit codes, and what each prints."""
    commands, expected = [], []
    for line in block.text.splitlines(keepends=True):
        if line.startswith("$ "):
            exits = _EXITS.search(line.rstrip("\n"))
            commands.append((line[2:].rstrip("\n"), int(exits[1]) if exits else 0))
            expected.append("")
        elif line.startswith("> "):
            commands[-1] = (f"{commands[-1][0]}\n{line[2:]}".rstrip("\n"), commands[-1][1])
        else:
            expected[-1] += line
    return commands, expected


def _environ_after(written: Path) -> dict[str, str]:
    pairs = [text.partition("=") for text in written.read_text("utf-8", "surrogateescape").split("\0") if text]
    written.unlink()
    return {name: value for name, _, value in pairs}


def test_the_examples_are_the_ones_of_this_repository() -> None:
    """What is imported by an example is what is in `src/`."""
    import holdfast

    assert Path(holdfast.__file__).is_relative_to(ROOT / "src")
