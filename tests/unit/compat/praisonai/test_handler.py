"""What PraisonAI's command line does with checkpoints."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.compat.praisonai.handler import CheckpointsHandler


def test_each_command_prints_and_says_whether_it_worked(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def use() -> None:
        handler = CheckpointsHandler(str(workspace))
        assert handler.feature_name == "checkpoints"
        (workspace / "a.txt").write_text("one\n")
        assert await handler.save("first") and not await handler.save("again")
        assert await handler.save("quiet", allow_empty=True, quiet=True)
        [newest, first, _] = await handler.list_checkpoints()
        assert (newest["message"], first["message"]) == ("quiet", "first")
        (workspace / "a.txt").write_text("two\n")
        assert (await handler.diff())["files"][0]["status"] == "modified"
        assert await handler.restore(first["id"]) and (workspace / "a.txt").read_text() == "one\n"
        assert not await handler.restore("deadbeef") and not await handler.rewind(9)
        assert await handler.delete_all()

    asyncio.run(use())
    printed = capsys.readouterr().out
    for part in ("saved a2", "not saved: No changes", "modified  a.txt  (+1/-1)", "restored a2", "Cannot rewind 9"):
        assert part in printed
    assert "all checkpoints deleted" in printed


def test_the_folder_is_the_present_one_by_default(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace)
    assert CheckpointsHandler().workspace_dir == str(workspace)
