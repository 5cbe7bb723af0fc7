"""`holdfast demo`."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.cli import render, streams
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app
from holdfast.cli.exit_codes import Exit
from holdfast.cli.main import main


@command()
@pass_app
def demo(app: App) -> int:
    """Save, break and restore a small project, and check the result.

    A small project in a temporary folder is saved, broken and restored, and the restore undone and redone. Then only
    the lines of an agent are taken back. Every state is compared with what it has to be, bytes, modes and times; the
    exit status says whether all were equal.
    """
    story = run(tell=(lambda line: None) if app.json else streams.answer)
    if app.json:
        app.document({"ok": story.ok, "steps": story.steps, "comparisons": story.comparisons})
    return Exit.DONE if story.ok else Exit.BUG


CONVERSATION = [
    {"role": "user", "content": "The cart shows the wrong total. Please fix it."},
    {"role": "assistant", "content": "I will look at src/cart.py first."},
]


def run(tell: Callable[[str], None]) -> Story:
    """Play the whole story in a temporary folder, which is gone afterwards; `tell` is given each line."""
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        story = Story(Path(folder).resolve(), tell)
        _play(story)
    tell("")
    n_good, n_all = sum(story.comparisons.values()), len(story.comparisons)
    failed = [step["command"] for step in story.steps if step["exit_code"] != Exit.DONE]
    verdict = f"{n_good} of {n_all} comparisons hold" + (
        f", {render.count(len(failed), 'command')} failed" if failed else ""
    )
    tell(render.paint(f"{verdict}; the demo's folder and store are deleted again.", "green" if story.ok else "red"))
    tell("Next: holdfast save in your project; holdfast install claude-code for an agent.")
    return story


def _play(story: Story) -> None:
    project = story.project
    make(project)
    story.conversation.write_text(json.dumps(CONVERSATION))
    before = snapshot(project)
    story.holdfast("init", shown=False)

    story.title("A project is saved, with the conversation so far")
    story.holdfast("save", "before the agent", "--state", f"conversation={story.conversation}")

    story.title("An agent makes a mess")
    story.show([f"$ {BREAKAGE}"])
    wreck(project)
    broken = snapshot(project)

    story.title("Go back")
    story.holdfast("restore", "latest")
    story.compare("every byte, mode, time, link and empty folder is as it was saved", project, before)
    state = story.holdfast("show", "latest", "--state", "conversation", shown=False)
    story.check("the conversation came back equal", _json(state) == CONVERSATION)

    story.title("Wanted the mess after all? A restore can be undone, and so can the undo")
    story.holdfast("undo")
    story.compare("the folder is as the agent left it", project, broken)
    story.holdfast("redo")
    story.compare("the folder is as it was saved, again", project, before)

    story.title("You and an agent edit the same file: take back only the agent's lines")
    config = project / CONFIG
    config.write_text(config.read_text().replace("debug = false", "debug = true"))
    story.holdfast("save", "--actor", AGENT, shown=False)  # as its hooks do
    config.write_text(config.read_text().replace("EUR", "SEK"))
    story.holdfast("undo", "--agent", AGENT)
    mine = FILES[CONFIG][1].replace("EUR", "SEK")
    story.check("your line is there, the agent's is gone", config.read_text() == mine)
    story.holdfast("verify", shown=False)


@dataclass
class Story:
    """What was run and what was compared, told while it happens."""

    folder: Path
    tell: Callable[[str], None]
    steps: list[dict[str, Any]] = field(default_factory=list)
    comparisons: dict[str, bool] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every command ended well and every comparison holds."""
        return all(step["exit_code"] == Exit.DONE for step in self.steps) and all(self.comparisons.values())

    @property
    def project(self) -> Path:
        return self.folder / "shop"

    @property
    def conversation(self) -> Path:
        return self.folder / "talk.json"

    def title(self, text: str) -> None:
        if self.steps[1:]:
            self.tell("")
        self.tell(render.paint(text, "bold"))

    def show(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.tell(f"    {line}")

    def holdfast(self, *args: str, shown: bool = True) -> str:
        """Run the program as a user would, tell what it printed, and return it."""
        typed = shlex.join(["holdfast", *(arg.replace(str(self.folder), "..") for arg in args)])
        if shown:
            self.show([f"$ {typed}"])
        place = ["-C", str(self.project), "--store", str(self.folder / "store")]
        colour = "always" if streams.has_colour(sys.stdout) else "never"
        printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n")
        with redirect_stdout(printed), redirect_stderr(printed):
            code = main(["--color", colour, *place, *args])
        if code == Exit.INTERRUPTED:
            raise KeyboardInterrupt
        printed.seek(0)
        text = printed.read().replace(f"{shlex.join(place)} ", "")  # as in the folder, where the story takes place
        if shown or code != Exit.DONE:
            self.show(text.splitlines())
        self.steps.append({"command": typed, "exit_code": int(code), "output": text})
        if code != Exit.DONE:
            self.tell(render.paint(f"  ✗ exit status {int(code)}", "red"))
        return text

    def compare(self, claim: str, project: Path, wanted: Snapshot) -> None:
        """Compare the folder with a snapshot, and tell each path that differs."""
        found = snapshot(project)
        self.check(claim, found == wanted)
        self.show([render.escape(line) for line in differences(wanted, found)])

    def check(self, claim: str, holds: bool) -> None:
        self.comparisons[claim] = holds
        self.tell(render.paint(f"  {'✓' if holds else '✗'} {claim}", "green" if holds else "red"))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


FILES = {
    "README.md": (0o644, "# Shop\n\nSells kelp.\n"),
    ".gitignore": (0o644, ".env\n"),
    ".env": (0o600, "PAYMENT_KEY=not-a-real-key\n"),
    "config.toml": (0o644, '[shop]\ncurrency = "EUR"\ndebug = false\n'),
    "deploy.sh": (0o755, "#!/bin/sh\necho deploying\n"),
    "secrets/token": (0o600, "not-a-real-token\n"),
    "src/app.py": (0o644, "from cart import total\n\nprint(total([1, 2, 3]))\n"),
    "src/cart.py": (0o644, "def total(prices):\n    return sum(prices)\n"),
}
LINK = ("current", "src/app.py")
EMPTY_FOLDER = "uploads"

CONFIG, AGENT = "config.toml", "claude-code"

BREAKAGE = "rm -rf src uploads .env; echo scratch > notes.tmp"

_MADE_NS = 1_700_000_000_123_456_789
_STEP_NS = 86_400_000_000_017


class DemoEntry(NamedTuple):
    """Everything of one path that a restore has to bring back."""

    kind: str
    mode: int
    mtime_ns: int
    content: bytes


Snapshot = dict[str, DemoEntry]


def make(project: Path) -> None:
    """Make the project, every path with a time of its own."""
    project.mkdir()
    for name, (mode, text) in FILES.items():
        path = project / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
    (project / EMPTY_FOLDER).mkdir(mode=0o750)
    (project / LINK[0]).symlink_to(LINK[1])
    for at, path in enumerate(reversed([project, *sorted(project.rglob("*"))])):
        when = _MADE_NS + at * _STEP_NS
        os.utime(path, ns=(when, when), follow_symlinks=False)


def wreck(project: Path) -> None:
    """Do what `BREAKAGE` says."""
    shutil.rmtree(project / "src")
    (project / EMPTY_FOLDER).rmdir()
    (project / ".env").unlink()
    (project / "notes.tmp").write_text("scratch\n")


def snapshot(project: Path) -> Snapshot:
    """Look at every path of the project."""
    return {str(path.relative_to(project)): _entry(path) for path in [project, *sorted(project.rglob("*"))]}


def _entry(path: Path) -> DemoEntry:
    status = path.lstat()
    kind, content = "folder", b""
    if stat.S_ISLNK(status.st_mode):
        kind, content = "link", os.fsencode(os.readlink(path))
    elif stat.S_ISREG(status.st_mode):
        kind, content = "file", path.read_bytes()
    return DemoEntry(kind, stat.S_IMODE(status.st_mode), status.st_mtime_ns, content)


def differences(wanted: Snapshot, found: Snapshot) -> list[str]:
    """Return one line for each path that is not as wanted, naming what differs."""
    lines = []
    for path in sorted(wanted.keys() | found.keys()):
        if path not in found:
            lines.append(f"{path} is missing")
        elif path not in wanted:
            lines.append(f"{path} should not be there")
        elif wanted[path] != found[path]:
            both = zip(DemoEntry._fields, wanted[path], found[path], strict=True)
            lines.append(f"{path} differs in " + ", ".join(name for name, old, new in both if old != new))
    return lines
