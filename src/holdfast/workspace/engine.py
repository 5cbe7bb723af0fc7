"""What saves, restores and recovers, put together; loaded when a workspace first needs more than to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from holdfast.scan.walk import Limits
from holdfast.workspace.capture.save import Saver
from holdfast.workspace.capture.scanner import Scanner
from holdfast.workspace.restore.recover import Recoverer
from holdfast.workspace.restore.restore import Restorer
from holdfast.workspace.stored.repository import Repository


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
        self.scanner = Scanner(
            root,
            repository,
            exclude_patterns=exclude_patterns,
            limits=Limits(*ignored_max_bytes),
            home=home,
            config_home=config_home,
        )
        self.saver = Saver(repository, self.scanner, clock)
        self.restorer = Restorer(repository, self.scanner, self.saver)
        self.recoverer = Recoverer(repository, self.scanner, self.saver, self.restorer)
