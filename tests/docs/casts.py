"""Makes the terminal casts in `docs/pictures`, of commands that are run for them: `make screens`.

The project and the agent are those of the tutorial.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from .pages import ROOT, Page

TUTORIAL = ROOT / "docs" / "tutorials" / "coding-agent.md"
WIDTH = 108
SHOWN = (
    "holdfast blame cart.py",
    "ls -A  # the agent's clean-up took .env with it, which git never had",
    "holdfast undo --agent",
    "ls -A",
    "holdfast undo --agent  # the turn before; your own line stays",
    "cat cart.py",
    "holdfast undo  # an undo can be undone",
)


def main(target: Path) -> None:
    """Play the session and write the picture."""
    with tempfile.TemporaryDirectory(prefix="holdfast-cast-") as scratch:
        (target / "undo.svg").write_text(picture(play(Path(scratch).resolve())), "utf-8")


def play(scratch: Path) -> str:
    """Run the commands, and return what a terminal shows, with its colours."""
    shop = scratch / "shop"
    for name in ("home", "shop"):
        (scratch / name).mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "HOLDFAST_", "XDG_"))}
    environ = kept | {
        "HOME": str(scratch / "home"), "XDG_STATE_HOME": str(scratch / "state"), "HOLDFAST_HELPER": "0",
        "LC_ALL": "C.UTF-8",  # the order of `ls`
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "FORCE_COLOR": "1", "COLUMNS": str(WIDTH),
    }  # fmt: skip
    blocks = list(Page(TUTORIAL).blocks())
    [agent] = [block.text for block in blocks if block.title]
    (scratch / "play.py").write_text(agent)
    commands = [line[2:] for block in blocks for line in block.text.splitlines() if line.startswith("$ ")]
    for command in ["git init -q", *commands[1 : commands.index("ls -A")]]:  # up to the end of what the agent does
        _run(command, shop, environ)
    return "".join(f"\x1b[1;32m$\x1b[0m \x1b[1m{command}\x1b[0m\n{_run(command, shop, environ)}" for command in SHOWN)


def picture(text: str) -> str:
    """Draw a terminal with this text. The picture fetches no font."""
    console = Console(file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(text.rstrip("\n")), soft_wrap=True)
    drawn = console.export_svg(title="shop", unique_id="cast")
    return re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL)


def _run(command: str, folder: Path, environ: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", f"exec 2>&1\n{command}"], cwd=folder, env=environ, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))
