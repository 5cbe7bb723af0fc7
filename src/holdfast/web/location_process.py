"""What must not happen in the server's own process.

The model of an index imports code of a project (`call = "module:name"`), and two projects may have modules of the same
name. Comparing tensors imports a framework, which takes 200 MiB, and reads whole tensors. A state of a million entries
takes 400 MiB while it is decoded, and searching or measuring 10,000 checkpoints 60 MiB; Python gives little of such
memory back, and the server is to stay small however long it runs.

So a process answers one question, and ends. The question is one JSON document on stdin, so that nobody else sees it
among the arguments of processes. On stdout it answers with lines of JSON: how far it is, what it found so far, and at
last the answer or an error; a JSON page, which may be large, follows in pieces.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from holdfast.errors import Conflict, Damaged, HoldfastError, NotFound, Refused, Unavailable
from holdfast.remedies import word_hint
from holdfast.web.remedies import PAGE

TIMEOUT_S = 600.0
WAIT_S = 60.0
AT_ONCE = 3
"""How many such processes run at a time. Further questions wait: each may take hundreds of MiB."""
_PIECE_BYTES = 64 << 10
_KINDS = {kind.__name__: kind for kind in (NotFound, Conflict, Damaged, Refused, Unavailable)}
_running = threading.BoundedSemaphore(AT_ONCE)

Tell = Callable[[str, Any], None]
"""Given what the process says before its answer: `progress`, and `found`."""


def ask(question: Mapping[str, Any], environ: Mapping[str, str], tell: Tell | None = None) -> Any:
    """Have a question answered: `what`, and what it is about. The errors are those of the library.

    If `tell` raises, the process is ended.
    """
    with _Process(question, environ) as process:
        return process.answer(tell)


def stream(question: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[bytes]:
    """Have a question answered by a JSON document, in pieces. Errors come before this returns.

    The document waits in a temporary file, so that a reader who is slow keeps no process.
    """
    output = tempfile.TemporaryFile()  # noqa: SIM115  # closed when it is read
    try:
        with _Process(question, environ, output) as process:
            process.finish()
            output.seek(0)
            process.answer(None)
    except BaseException:
        output.close()
        raise
    return _pieces(output)


def _pieces(output: IO[bytes]) -> Iterator[bytes]:
    with output:
        while piece := output.read(_PIECE_BYTES):
            yield piece


class _Process:
    """A process that answers one question."""

    def __init__(
        self, question: Mapping[str, Any], environ: Mapping[str, str], output: IO[bytes] | None = None
    ) -> None:
        if not _running.acquire(timeout=WAIT_S):
            raise Unavailable("other work keeps this waiting", hint="Try again when it has ended.")
        self._timer = threading.Timer(TIMEOUT_S, self._expire)
        self._is_over = self._is_expired = False
        try:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `end`
            call = [sys.executable, "-P", "-m", "holdfast.web.location_process"]
            self._process = subprocess.Popen(
                call,
                stdin=subprocess.PIPE,
                stdout=output or subprocess.PIPE,
                stderr=self._errors,
                env=dict(environ),
            )
        except BaseException:
            _running.release()
            raise
        assert self._process.stdin is not None
        found = output or self._process.stdout
        assert found is not None
        self._output: IO[bytes] = found
        self._timer.daemon = True
        self._timer.start()
        try:
            with self._process.stdin as stdin:
                stdin.write(json.dumps(question).encode())
        except BrokenPipeError:
            pass  # it failed; `answer` says how

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def answer(self, tell: Tell | None) -> Any:
        """Wait for the answer."""
        for line in self._output:
            try:
                told = json.loads(line)
            except ValueError:
                break
            if "error" in told:
                raise _error(told["error"])
            if "answer" in told:
                return told["answer"]
            if tell is not None:
                for name, value in told.items():
                    tell(name, value)
        if self._is_expired:
            minutes = f"{TIMEOUT_S / 60:.0f}"
            raise Unavailable(f"no answer within {minutes} minutes", hint="Use the command line.")
        self._process.wait()
        self._errors.seek(0)
        last = self._errors.read()[-4096:].decode("utf-8", "replace").strip().rpartition("\n")[2]
        why = last[:300] or f"exit status {self._process.returncode}"
        raise Unavailable(f"the process that was to answer failed: {why}", hint="Try it on the command line.")

    def finish(self) -> None:
        """Wait until the process has ended."""
        self._process.wait()

    def end(self) -> None:
        """End the process, whatever it does; a second time does nothing."""
        if self._is_over:
            return
        self._is_over = True
        self._timer.cancel()
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()
        _running.release()

    def _expire(self) -> None:
        self._is_expired = True
        self._process.kill()


def _error(told: dict[str, Any]) -> HoldfastError:
    return _KINDS.get(told["kind"], Unavailable)(told["message"], hint=told["hint"])


# within the process


def main() -> None:
    """Answer one question."""
    question = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a model prints is no answer

    def say(**words: Any) -> None:
        answers.write(json.dumps(words, default=str).encode() + b"\n")
        answers.flush()

    try:
        found = _ANSWERS[question["what"]](question, say)
        if not question.get("as_json"):
            say(answer=found)
            return
        say(answer=None)
        answers.write(json.dumps(found, default=str).encode() + b"\n")
        answers.flush()
    except HoldfastError as error:
        kind = next((name for name, kind in _KINDS.items() if isinstance(error, kind)), "")
        say(error={"kind": kind, "message": error.message, "hint": word_hint(error, PAGE)})
    except BrokenPipeError:
        os._exit(1)  # nobody waits for it any more; closing would fail again


def _compare_tensors(question: dict[str, Any], _: Callable[..., None]) -> Any:
    from holdfast.training.location import TrainingLocation

    location = TrainingLocation(question["address"])
    try:
        return location.diff(question["a"], question["b"])._asdict()
    finally:
        location.close()


def _flow(question: dict[str, Any], _: Callable[..., None]) -> Any:
    from holdfast.flow.location import FlowLocation
    from holdfast.web import states

    location = FlowLocation(question["address"], question["options"])
    try:
        if question["what"] == "state":
            value = states.value_at(location.get(question["ref"]).state, question["at"])
            return {"value": value} if question["as_json"] else states.view(value, question["at"], question["start"])
        if question["what"] == "checkpoint":
            details = location.get(question["ref"])
            return {"checkpoint": details.document} if question["as_json"] else states.summarize(details)
        compared = location.diff(question["a"], question["b"])
        return compared.document if question["as_json"] else states.summarize_changes(compared)
    finally:
        location.close()


def _verify(question: dict[str, Any], say: Callable[..., None]) -> Any:
    from holdfast.location import kind_of
    from holdfast.web.folder_work import throttled

    location = kind_of(question["address"]).load()(question["address"], question["options"])
    try:
        return location.verify(throttled(say))._asdict()
    finally:
        location.close()


def _index(question: dict[str, Any], _: Callable[..., None]) -> Any:
    from holdfast.adapters.index_location import ConfiguredIndexLocation

    location = ConfiguredIndexLocation(question["address"], {"project": question["project"] or None})
    try:
        if question["what"] == "plan":
            return location.plan().to_dict()
        if question["what"] == "search":
            channel, limit = question["channel"], question["limit"]
            channel, every, hits = location.search(question["text"], channel=channel, limit=limit)
            return {"channel": channel, "channels": every, "items": [asdict(hit) for hit in hits]}
        return location.verify()._asdict()
    finally:
        location.close()


def _search_folder(question: dict[str, Any], say: Callable[..., None]) -> Any:
    from holdfast.web import folder_work

    return folder_work.search(_workspace(question), question, say)


def _usage(question: dict[str, Any], _: Callable[..., None]) -> Any:
    from holdfast.web import folder_work

    return folder_work.usage(_workspace(question), question["limit"])


def _workspace(question: dict[str, Any]) -> Any:
    from holdfast.web.places import open_workspace

    home = Path(question["home"])
    return open_workspace(question["address"], os.environ, home, store=question["store"])


_ANSWERS: dict[str, Callable[[dict[str, Any], Callable[..., None]], Any]] = {
    "plan": _index,
    "search": _index,
    "verify": _index,
    "verify_location": _verify,
    "compare_tensors": _compare_tensors,
    "checkpoint": _flow,
    "state": _flow,
    "compare": _flow,
    "search_folder": _search_folder,
    "usage": _usage,
}

if __name__ == "__main__":
    main()
