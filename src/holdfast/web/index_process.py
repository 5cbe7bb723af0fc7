"""What needs the model of an index runs in a process of its own: it imports code of a project (`call = "module:name"`),
and two projects may have modules of the same name.

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
    """Answer `plan`, `search` or `verify` of an index. The errors are those of the library."""
    question = json.dumps({"what": what, "address": address, "project": project, **more}).encode()
    call = [sys.executable, "-P", "-m", "holdfast.web.index_process"]
    try:
        done = subprocess.run(call, input=question, capture_output=True, env=dict(environ), timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"no answer within {TIMEOUT_S / 60:.0f} minutes", hint="Use the command line.") from None
    try:
        told = json.loads(done.stdout.rpartition(b"\n\n")[2])
    except ValueError:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise Unavailable(f"the index could not be opened: {last[:300]}", hint="Try it on the command line.") from None
    if "error" in told:
        raise _error(told["error"])
    return told["answer"]


def _error(told: dict[str, Any]) -> HoldfastError:
    return _KINDS.get(told["kind"], Unavailable)(told["message"], hint=told["hint"])


def main() -> None:
    """Answer one question."""
    from holdfast.adapters.index_location import ConfiguredIndexLocation

    question = json.load(sys.stdin)
    answers = os.dup(1)
    os.dup2(2, 1)  # what a model prints is no answer
    try:
        location = ConfiguredIndexLocation(question["address"], {"project": question["project"] or None})
        try:
            told: dict[str, Any] = {"answer": _answer(location, question)}
        finally:
            location.close()
    except HoldfastError as error:
        kind = next((name for name, kind in _KINDS.items() if isinstance(error, kind)), "")
        told = {"error": {"kind": kind, "message": error.message, "hint": word_hint(error, PAGE)}}
    os.write(answers, b"\n\n" + json.dumps(told, default=str).encode())


def _answer(location: Any, question: dict[str, Any]) -> Any:
    if question["what"] == "plan":
        return location.plan().to_dict()
    if question["what"] == "search":
        channel, every, hits = location.search(question["text"], channel=question["channel"], limit=question["limit"])
        return {"channel": channel, "channels": every, "items": [asdict(hit) for hit in hits]}
    return location.verify()._asdict()


if __name__ == "__main__":
    main()
