"""The process that runs checks in the background: `python -m holdfast.workspace.check_process`."""

from __future__ import annotations

import contextlib
import json
import os
import sys

from holdfast.errors import HoldfastError
from holdfast.workspace import background


def run(path: str, store: str, *, allow_home: bool, trust_store: bool) -> None:
    """Run the checks that are wanted, as the configuration of the folder says now."""
    from holdfast.workspace.config import read_settings
    from holdfast.workspace.workspace import Workspace

    options = read_settings(path).options()
    Workspace(
        path, store=store, create=False, allow_home=allow_home, trust_store=trust_store, on_unknown="tagged", **options
    ).run_wanted_checks()


def _main() -> None:
    os.chdir("/")
    background.give_way()
    with contextlib.suppress(HoldfastError, OSError):  # `status` has what went wrong
        run(**json.loads(sys.argv[1]))


if __name__ == "__main__":
    _main()
