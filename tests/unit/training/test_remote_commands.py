"""The command line, where the checkpoints are in an object store."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from holdfast.cli.main import main
from holdfast.training import save_checkpoint

from .conftest import Faulty

pytestmark = [
    pytest.mark.extras,
    pytest.mark.filterwarnings("ignore"),  # what the server says of its own dependencies
]


@pytest.fixture
def holdfast(url: str, capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command on a run of three checkpoints; returns the exit code and the JSON."""
    for step in (1, 2, 3):
        state = {"w": torch.ones(5) * step, "frozen": torch.ones(5), "epoch": step}
        save_checkpoint(url, step, state, metrics={"loss": abs(2 - step) + 0.5}, best_key="loss", rng=False)

    def run(*args: str) -> Any:
        capfd.readouterr()
        code = main(["--json", *args])
        return code, json.loads(capfd.readouterr().out)

    return run


def test_info_takes_a_url(holdfast: Callable[..., Any], url: str) -> None:
    for ref, step in (("latest", 3), ("best", 2), ("1", 1), ("latest~1", 2)):
        code, found = holdfast("training", "info", ref, "--dir", url)
        about = found["checkpoint"]
        assert (code, about["step"], about["best"]) == (0, step, step == 2)
        assert (about["tensors"], about["files"], about["path"]) == (2, 3, f"{url}/step-0000000{step}")
    assert holdfast("training", "info", "9", "--dir", url)[0] == 3
    code, found = holdfast("training", "info", "--dir", "s3://no-such-bucket/x")
    assert (code, found["error"]["kind"]) == (3, "not-found")
    assert "the bucket does not exist" in found["error"]["message"]


def test_the_general_commands_take_a_url(holdfast: Callable[..., Any], url: str, server: tuple[Faulty, str]) -> None:
    server[0].requests.clear()
    code, found = holdfast("-C", url, "log")
    assert (code, [each["step"] for each in found["items"]]) == (0, [3, 2, 1])
    assert [each["tensors"] for each in found["items"]] == [2, 2, 2]
    assert len(server[0].requests) <= 4  # not more with more checkpoints
    assert holdfast("-C", url, "show", "2")[1]["checkpoint"]["metrics"] == {"loss": 0.5}
    code, found = holdfast("-C", url, "diff", "1", "3")
    assert [(each["name"], each["max_change"]) for each in found["changes"]] == [("w", 2.0)]
    assert found["values"] == {"epoch": [1, 3]}
    code, found = holdfast("-C", url, "diff", "latest~2", "latest~1")
    assert [(each["name"], each["max_change"]) for each in found["changes"]] == [("w", 1.0)]
    assert holdfast("-C", url, "verify")[0] == 0
    assert [each["step"] for each in holdfast("-C", url, "prune", "--keep-last", "1", "--dry-run")[1]["items"]] == [1]
    assert [each["step"] for each in holdfast("prune", url, "--keep-last", "1", "--yes")[1]["items"]] == [1]
    assert [each["step"] for each in holdfast("-C", url, "log")[1]["items"]] == [3, 2]
    assert holdfast("-C", "foo://x", "log")[0] == 6


def test_a_url_behind_the_command_is_the_same_as_with_c(holdfast: Callable[..., Any], url: str) -> None:
    for words in (["log", "-n", "2"], ["show", "best"], ["diff", "1", "2"], ["verify"], ["usage"]):
        assert holdfast(words[0], url, *words[1:]) == holdfast("-C", url, *words)


def test_pages_pins_and_deletions(holdfast: Callable[..., Any], url: str) -> None:
    page = holdfast("log", url, "-n", "2")[1]
    assert ([each["step"] for each in page["items"]], page["next"]) == ([3, 2], "2")
    page = holdfast("log", url, "-n", "2", "--before", page["next"])[1]
    assert ([each["step"] for each in page["items"]], page["next"]) == ([1], None)
    assert holdfast("pin", url, "1")[1]["checkpoint"]["pinned"]
    assert holdfast("prune", url, "--keep-last", "1", "--yes")[1]["items"] == []
    assert [each["step"] for each in holdfast("rm", url, "latest", "1", "--yes")[1]["items"]] == [3, 1]
    assert [each["step"] for each in holdfast("log", url)[1]["items"]] == [2]
    assert holdfast("show", url)[1]["checkpoint"]["step"] == 2
