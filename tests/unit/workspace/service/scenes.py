"""Scenes with a checkpoint service, each with a project and a loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from holdfast.workspace import CheckpointService

if TYPE_CHECKING:
    from unit.workspace.conftest import Project

Scene = Callable[[CheckpointService], Coroutine[Any, Any, None]]


def make(project: Project, **options: Any) -> CheckpointService:
    """The service of a project, as a new process would make it."""
    given = {"storage_dir": project.area / "stores", "home": project.home, "environ": {}}
    return CheckpointService(project.root, **(given | options))


def play(project: Project, scene: Scene, **options: Any) -> CheckpointService:
    """Run a scene with a service of its own, to its end."""
    service = make(project, **options)

    async def whole() -> None:
        async with service:
            await scene(service)

    asyncio.run(whole())
    return service


def content(project: Project) -> dict[str, bytes]:
    """Every file, by its path."""
    files = (path for path in project.root.rglob("*") if path.is_file())
    return {path.relative_to(project.root).as_posix(): path.read_bytes() for path in files}
