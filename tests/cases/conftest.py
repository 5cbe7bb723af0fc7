"""Every test here gets a `case`, and every case is held to the invariants when its body is done."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from .harness import Case
from .people import IS_ROOT, TIME_LIMIT_S, UNPRIVILEGED_ID, run_as


@pytest.fixture
def user() -> str:
    """Who runs the case; `people.by_everyone` and `people.by_somebody` choose otherwise."""
    return "root" if IS_ROOT else "somebody"


@pytest.fixture
def case(user: str) -> Iterator[Case]:
    """A case in an area of its own. It lies where an unprivileged user can reach it, which pytest's own does not."""
    area = Path(os.path.realpath(tempfile.mkdtemp(prefix="holdfast-case-")))
    area.chmod(0o755)
    if IS_ROOT and user == "somebody":
        os.chown(area, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
    yield Case(area)
    if not IS_ROOT:
        subprocess.run(["chmod", "-R", "u+rwX", area], check=False, capture_output=True)
    subprocess.run(["rm", "-rf", "--one-file-system", area], check=True)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the body between making the case and checking it, as the user that the test names, with a time limit."""
    case = pyfuncitem.funcargs.get("case")
    if not isinstance(case, Case):
        return None
    wanted = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    def body() -> None:
        signal.signal(signal.SIGALRM, _ring)
        signal.alarm(TIME_LIMIT_S)
        try:
            case.start()
            pyfuncitem.obj(**wanted)
            case.check()
        finally:
            signal.alarm(0)
            case.end()

    run_as(str(pyfuncitem.funcargs.get("user")), body)
    return True


def _ring(_signal: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"the case did not end within {TIME_LIMIT_S} seconds")
