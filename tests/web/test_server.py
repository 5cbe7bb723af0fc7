"""What the server does beside answering: it gives memory back."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient  # noqa: F401  # marks these tests

from holdfast.durable import platform
from holdfast.web import server
from waiting import wait_for


def test_the_heap_is_kept_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    class NoServer:
        def __init__(self, _: Any) -> None: ...

        def run(self, sockets: Any) -> None:
            wait_for(lambda: "trimmed" in done)

    monkeypatch.setattr(platform, "keep_heap_small", lambda: done.append("small"))
    monkeypatch.setattr(platform, "give_memory_back", lambda: done.append("trimmed"))
    monkeypatch.setattr(server, "_TRIM_EVERY_S", 0.001)
    monkeypatch.setattr(server.uvicorn, "Server", NoServer)
    begun = threading.active_count()
    told: list[str] = []
    serve = server.serve
    serve([], port=0, read_only=False, opens=False, tell=told.append, environ={"HOME": str(tmp_path)}, home=tmp_path)
    assert done[0] == "small"
    assert "trimmed" in done
    assert told[0].startswith("http://127.0.0.1:")
    wait_for(lambda: threading.active_count() <= begun)  # it ends with the server
