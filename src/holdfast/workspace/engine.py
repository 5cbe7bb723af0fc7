"""What saves, restores and recovers, put together; loaded when a workspace first needs more than to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.scan.limits import Limits
from holdfast.workspace.capture.save import Saver
from holdfast.workspace.capture.scanner import Scanner
from holdfast.workspace.stored.repository import Repository

if TYPE_CHECKING:
    from holdfast.workspace.restore.recover import Recoverer
    from holdfast.workspace.restore.restore import Restorer


class Engine:
    """The parts that look at a folder, or change it."""

    def __init__(
        self,
        root: Path,
        repository: Repository,
        *,
        exclude_patterns: Sequence[str],
        ignored_max_bytes: tuple[int, int],
        home: Path,
        config_home: Path,
        clock: Callable[[], datetime],
    ) -> None:
        self._repository = repository
        self.scanner = Scanner(
            root,
            repository,
            exclude_patterns=exclude_patterns,
            limits=Limits(*ignored_max_bytes),
            home=home,
            config_home=config_home,
        )
        self.saver = Saver(repository, self.scanner, clock)

    @cached_property
    def restorer(self) -> Restorer:
        from holdfast.workspace.restore.restore import Restorer  # who only saves does not pay for it

        return Restorer(self._repository, self.scanner, self.saver)

    @cached_property
    def recoverer(self) -> Recoverer:
        from holdfast.workspace.restore.recover import Recoverer  # as above

        return Recoverer(self._repository, self.scanner, self.saver, self.restorer)
