"""OSErrors as Unavailable: message, hint and cause."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from holdfast import NotFound, Unavailable
from holdfast.durable.os_errors import os_errors


def test_the_message_names_the_action_the_path_and_the_cause(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught, os_errors(tmp_path, "writing to", outcome="Nothing was saved."):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.message == f"writing to {tmp_path} failed: No space left on device"
    assert caught.value.hint.startswith("Free some disk space") and caught.value.hint.endswith("Nothing was saved.")
    assert isinstance(caught.value.__cause__, OSError)


def test_message_without_action_names_the_file(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(Unavailable) as caught, os_errors(tmp_path):
        missing.read_bytes()
    assert caught.value.message == f"{missing}: No such file or directory"


def test_other_errors_pass(tmp_path: Path) -> None:
    with pytest.raises(NotFound), os_errors(tmp_path):
        raise NotFound("there is none")
