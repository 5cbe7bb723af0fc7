"""The story that `holdfast demo` tells, with the real program and a real folder, and the proof that it is true."""

from __future__ import annotations

import io
import json
import shlex
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.cli import demo_project, render
from holdfast.cli.exits import Exit
from holdfast.cli.main import main

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
    return story


def _play(story: Story) -> None:
    project = story.project
    demo_project.make(project)
    story.conversation.write_text(json.dumps(CONVERSATION))
    before = demo_project.snapshot(project)

    story.title("A small project: code, a script, an empty folder, a link, an ignored .env, a 0600 secret")
    story.show(demo_project.tree(project))

    story.title("Save it, together with the conversation so far")
    story.holdfast("save", "before the agent starts", "--state", f"conversation={story.conversation}")

    story.title("An agent makes a mess")
    story.show([f"$ {line}" for line in demo_project.BREAKAGE])
    demo_project.wreck(project)
    broken = demo_project.snapshot(project)

    story.title("See what happened")
    story.holdfast("diff", "--stat")

    story.title("Look before you leap: what would a restore do?")
    story.holdfast("restore", "latest", "--dry-run")

    story.title("Restore")
    story.holdfast("restore", "latest", "--yes")
    story.compare("the folder is as it was saved: bytes, modes, times, links, empty folders", project, before)
    state = story.holdfast("show", "latest", "--state", "conversation")
    story.check("the conversation came back equal", _json(state) == CONVERSATION)

    story.title("Wanted the mess after all? A restore can be undone")
    story.holdfast("undo")
    story.compare("the folder is as the agent left it", project, broken)

    story.title("And the undo can be undone")
    story.holdfast("redo")
    story.compare("the folder is as it was saved, again", project, before)

    story.title("Is everything in the store sound?")
    story.holdfast("log", "--all")
    story.holdfast("verify")


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
        return self.folder / "conversation.json"

    def title(self, text: str) -> None:
        self.tell("")
        self.tell(render.paint(text, "bold"))

    def show(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.tell(f"    {line}")

    def holdfast(self, *args: str) -> str:
        """Run the program as a user would, tell what it printed, and return it."""
        typed = shlex.join(["holdfast", *(arg.replace(str(self.folder), "..") for arg in args)])
        self.show([f"$ {typed}"])
        place = ["-C", str(self.project), "--store", str(self.folder / "store")]
        printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n")
        with redirect_stdout(printed), redirect_stderr(printed):
            code = main([*place, *args])
        if code == Exit.INTERRUPTED:
            raise KeyboardInterrupt
        printed.seek(0)
        text = printed.read().replace(f"{shlex.join(place)} ", "")  # as in the folder, where the story takes place
        self.show(text.splitlines())
        self.steps.append({"command": typed, "exit_code": int(code), "output": text})
        if code != Exit.DONE:
            self.tell(render.paint(f"  ✗ exit status {int(code)}", "red"))
        return text

    def compare(self, claim: str, project: Path, wanted: demo_project.Snapshot) -> None:
        """Compare the folder with a snapshot, and tell each path that differs."""
        found = demo_project.snapshot(project)
        self.check(claim, found == wanted)
        self.show([render.escape(line) for line in demo_project.differences(wanted, found)])

    def check(self, claim: str, holds: bool) -> None:
        self.comparisons[claim] = holds
        self.tell(render.paint(f"  {'✓' if holds else '✗'} {claim}", "green" if holds else "red"))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
