"""Any order of edits, commits, checkpoints, rollbacks and attempts leaves what a simple model says, and git alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from examples import examples
from holdfast.project import CheckpointType, SyncCheckpointManager

NAMED = ("a.txt", "feature_list.json", "claude-progress.txt", "../outside.txt")
NAMES = st.sampled_from(NAMED)
TEXTS = st.sampled_from(["", "one\n", "two\n", '[{"id": "x"}]'])
KEPT = {CheckpointType.AUTOMATIC: 5, CheckpointType.SESSION: 3}


class World(NamedTuple):
    """What the model knows: the content of each file, and the named state."""

    files: dict[str, str]
    plan: int


class Projects(RuleBasedStateMachine):
    """A project in git with a paper outside, beside a model of it."""

    @initialize()
    def begin(self) -> None:
        self.area = Path(os.path.realpath(tempfile.mkdtemp(prefix="holdfast-model-")))
        self.root = self.area / "project"
        self.root.mkdir()
        self.git("init", "-q", "-b", "main")
        (self.root / ".gitignore").write_text("*.log\n")
        self.manager = self.open()
        self.world = World({}, 0)
        self.known: dict[str, tuple[CheckpointType, World]] = {}
        self.before: list[World] = []
        self.head = ""

    def open(self) -> SyncCheckpointManager:
        options: dict[str, Any] = {"store": self.area / "store", "home": self.area, "environ": {}}
        return SyncCheckpointManager(self.root, progress_file="../outside.txt", **options)

    def git(self, *arguments: str) -> str:
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.area), "GIT_CONFIG_NOSYSTEM": "1"}
        command = ["git", *who, "-C", str(self.root), *arguments]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.strip()

    @rule(name=NAMES, text=TEXTS)
    def write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)
        self.world = World({**self.world.files, name: text}, self.world.plan)

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)
        files = {path: text for path, text in self.world.files.items() if path != name}
        self.world = World(files, self.world.plan)

    @rule()
    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "x")
        self.head = self.git("rev-parse", "HEAD")

    @rule(kind=st.sampled_from(CheckpointType))
    def create(self, kind: CheckpointType) -> None:
        self.world = World(self.world.files, self.world.plan + 1)
        made = self.manager.create_checkpoint("x", type=kind, state={"plan": self.world.plan})
        assert made.git_state.commit_hash == self.head
        self.known[made.id] = (kind, self.world)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        listed = [each.id for each in self.manager.list(None)]
        target = data.draw(st.sampled_from(listed))
        done = self.manager.rollback(target, state={"plan": self.world.plan})
        self.before.append(self.world)
        self.world = self._brought(self.known[target][1])
        assert done.ok
        assert done.state == {"plan": self.world.plan}

    @precondition(lambda self: self.before)
    @rule()
    def undo(self) -> None:
        done = self.manager.undo()
        self.world = self._brought(self.before.pop())
        assert done.state == {"plan": self.world.plan}

    @rule(name=NAMES, text=TEXTS)
    def fail(self, name: str, text: str) -> None:
        state = {"plan": self.world.plan}
        with pytest.raises(ZeroDivisionError), self.manager.attempt("x", state=state) as attempt:
            was = self.world
            self.write(name, text)
            _ = 1 / 0
        assert attempt.checkpoint
        self.before.append(World(self.world.files, was.plan))
        self.known[attempt.checkpoint.id] = (CheckpointType.AUTOMATIC, was)
        self.world = self._brought(was)

    @rule()
    def come_back_later(self) -> None:
        self.manager = self.open()

    def _brought(self, target: World) -> World:
        """What a rollback makes of it: one outside that was made since stays."""
        outside = {name: text for name, text in self.world.files.items() if name.startswith("../")}
        return World({**outside, **target.files}, target.plan)

    @invariant()
    def the_folder_is_what_the_model_says(self) -> None:
        if not hasattr(self, "root"):
            return
        found = {}
        for name in NAMED:
            if (self.root / name).exists():
                found[name] = (self.root / name).read_text()
        assert found == self.world.files

    @invariant()
    def git_is_where_it_was(self) -> None:
        if getattr(self, "head", ""):
            assert self.git("rev-parse", "HEAD") == self.head

    @invariant()
    def as_many_are_kept_as_the_types_say(self) -> None:
        if not getattr(self, "known", None):
            return
        listed = [each.id for each in self.manager.list(None)]
        for kind in CheckpointType:
            every = [key for key, (each, _) in self.known.items() if each is kind]
            kept = every[-KEPT.get(kind, len(every)) :] if every else []
            assert set(kept) <= set(listed)

    def teardown(self) -> None:
        if hasattr(self, "area"):
            shutil.rmtree(self.area)


TestProjects = Projects.TestCase
TestProjects.settings = settings(max_examples=examples(25), stateful_step_count=15)
