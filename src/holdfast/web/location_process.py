"""What must not happen in the server's own process.

The model of an index imports code of a project (`call = "module:name"`), and two projects may have modules of the same
name. Comparing tensors imports a framework, which takes 200 MiB, and reads whole tensors.

The question is one JSON document on stdin, so that nobody else sees it among the arguments of processes, and so is the
answer on stdout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from holdfast.errors import Conflict, Damaged, HoldfastError, NotFound, Refused, Unavailable
from holdfast.remedies import word_hint
from holdfast.web.remedies import PAGE

TIMEOUT_S = 600.0
_KINDS = {kind.__name__: kind for kind in (NotFound, Conflict, Damaged, Refused, Unavailable)}


def ask(what: str, address: str, project: str, environ: Mapping[str, str], **more: Any) -> Any:
    """Answer `plan`, `search` or `verify` of an index, or `compare` of a run. The errors are those of the library."""
    question = json.dumps({"what": what, "address": address, "project": project, **more}).encode()
    call = [sys.executable, "-P", "-m", "holdfast.web.location_process"]
    try:
        done = subprocess.run(call, input=question, capture_output=True, env=dict(environ), timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"no answer within {TIMEOUT_S / 60:.0f} minutes", hint="Use the command line.") from None
    try:
        told = json.loads(done.stdout.rpartition(b"\n\n")[2])
    except ValueError:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise Unavailable(
            f"the process that was to answer failed: {last[:300]}", hint="Try it on the command line."
        ) from None
    if "error" in told:
        raise _error(told["error"])
    return told["answer"]


def _error(told: dict[str, Any]) -> HoldfastError:
    return _KINDS.get(told["kind"], Unavailable)(told["message"], hint=told["hint"])


def main() -> None:
    """Answer one question."""
    question = json.load(sys.stdin)
    answers = os.dup(1)
    os.dup2(2, 1)  # what a model prints is no answer
    try:
        told: dict[str, Any] = {
            "answer": _comparison(question) if question["what"] == "compare" else _of_index(question)
        }
    except HoldfastError as error:
        kind = next((name for name, kind in _KINDS.items() if isinstance(error, kind)), "")
        told = {"error": {"kind": kind, "message": error.message, "hint": word_hint(error, PAGE)}}
    os.write(answers, b"\n\n" + json.dumps(told, default=str).encode())


def _comparison(question: dict[str, Any]) -> dict[str, Any]:
    from holdfast.training.location import TrainingLocation

    location = TrainingLocation(question["address"])
    try:
        return location.diff(question["a"], question["b"])._asdict()
    finally:
        location.close()


def _of_index(question: dict[str, Any]) -> Any:
    from holdfast.adapters.index_location import ConfiguredIndexLocation

    location = ConfiguredIndexLocation(question["address"], {"project": question["project"] or None})
    try:
        return _answer(location, question)
    finally:
        location.close()


def _answer(location: Any, question: dict[str, Any]) -> Any:
    if question["what"] == "plan":
        return location.plan().to_dict()
    if question["what"] == "search":
        channel, every, hits = location.search(question["text"], channel=question["channel"], limit=question["limit"])
        return {"channel": channel, "channels": every, "items": [asdict(hit) for hit in hits]}
    return location.verify()._asdict()


if __name__ == "__main__":
    main()
