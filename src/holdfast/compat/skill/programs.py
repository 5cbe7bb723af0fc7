"""The skill's scripts as programs. Each prints JSON, and errors to stderr with exit code 1."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from holdfast.compat.skill.manager import CheckpointManager, CheckpointType
from holdfast.compat.skill.snapshots import GitSnapshot, StateSnapshot
from holdfast.errors import HoldfastError

Argv = Sequence[str] | None


def checkpoint_manager(argv: Argv = None) -> int:
    """Create, list, show, delete and roll back checkpoints."""
    parser = _parser("checkpoint_manager.py", "Checkpoints of a project.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    create = verbs.add_parser("create", help="save the project")
    create.add_argument("name")
    create.add_argument("description", nargs="?", default="")
    create.add_argument("--type", choices=[kind.value for kind in CheckpointType], default="manual")
    create.add_argument("--context", type=json.loads, default=None, metavar="JSON")
    listing = verbs.add_parser("list", help="checkpoints, newest first")
    listing.add_argument("--type", choices=[kind.value for kind in CheckpointType])
    for verb, what in {"show": "one checkpoint", "rollback": "restore one", "delete": "delete one"}.items():
        verbs.add_parser(verb, help=what).add_argument("checkpoint", help="id, name, or `latest`")
    verbs.add_parser("undo", help="undo the last rollback")
    return _run(parser, argv, _checkpoint_manager)


async def _checkpoint_manager(manager: CheckpointManager, given: argparse.Namespace) -> object:
    match given.verb:
        case "create":
            saved = await manager.create_checkpoint(given.name, given.description, given.type, given.context)
            return saved.to_dict()
        case "list":
            return [each.to_dict() for each in await manager.list_checkpoints(given.type)]
        case "show":
            return (await manager.get_checkpoint(given.checkpoint)).to_dict()
        case "delete":
            return (await manager.delete_checkpoint(given.checkpoint)).to_dict()
    return await _rolled_back(manager, given)


def rollback_handler(argv: Argv = None) -> int:
    """Roll back to a checkpoint, or undo that."""
    parser = _parser("rollback_handler.py", "Roll a project back to a checkpoint.")
    parser.add_argument("checkpoint", nargs="?", default="latest", help="id, name, or `latest`")
    parser.add_argument("--undo", dest="verb", action="store_const", const="undo", help="undo the last rollback")
    return _run(parser, argv, _rolled_back)


async def _rolled_back(manager: CheckpointManager, given: argparse.Namespace) -> object:
    if given.verb == "undo":
        done = await manager.undo()
    elif given.checkpoint == "latest":
        done = await manager.rollback_to_latest()
    else:
        done = await manager.rollback(given.checkpoint)
    answer = {"checkpoint": done.checkpoint.id, "ok": done.ok, "message": done.message, "undo_id": done.undo_id}
    return answer | {"written": done.restored.written, "removed": done.restored.removed, "failed": done.restored.failed}


def git_snapshot(argv: Argv = None) -> int:
    """Print the git state of a project."""
    parser = _parser("git_snapshot.py", "The git state of a project. Saves nothing.")

    async def look(manager: CheckpointManager, given: argparse.Namespace) -> object:
        return vars(GitSnapshot(given.project).capture())

    return _run(parser, argv, look)


def state_snapshot(argv: Argv = None) -> int:
    """Print the feature list's state and the progress file of a project."""
    parser = _parser("state_snapshot.py", "Features and progress of a project. Saves nothing.")

    async def look(manager: CheckpointManager, given: argparse.Namespace) -> object:
        snapshot = StateSnapshot(given.project)
        return {"feature_state": vars(snapshot.capture()), "progress": snapshot.progress()}

    return _run(parser, argv, look)


def _parser(name: str, about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=name, description=about)
    parser.add_argument("--project", default=".", metavar="FOLDER", help="the project; the present folder by default")
    return parser


def _run(
    parser: argparse.ArgumentParser,
    argv: Argv,
    work: Callable[[CheckpointManager, argparse.Namespace], Awaitable[object]],
) -> int:
    """Parse, do the work, print the answer. An answer that is not `ok` is exit code 1."""
    given = parser.parse_args(argv)

    async def call() -> object:
        manager = CheckpointManager(given.project)
        try:
            return await work(manager, given)
        finally:
            await manager.close()

    try:
        answer: Any = asyncio.run(call())
    except HoldfastError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(answer, indent=2, ensure_ascii=False))
    return 1 if isinstance(answer, dict) and answer.get("ok") is False else 0
