"""The process that runs checks in the background: `python -m holdfast.workspace.check_process`."""

from __future__ import annotations

import contextlib
import json
import os
import sys

from holdfast.errors import HoldfastError


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
    with contextlib.suppress(OSError):
        os.nice(10)
    with contextlib.suppress(HoldfastError, OSError):  # `status` has what went wrong
        run(**json.loads(sys.argv[1]))


if __name__ == "__main__":
    _main()
