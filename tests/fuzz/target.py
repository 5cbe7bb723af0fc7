"""What a fuzz target is, which errors it may raise, and how its inputs are varied without a fuzzer."""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError

SEPARATOR = b"\n--part--\n"
"""Between the files of an input that stands for several."""
MAX_PROCESSOR_S = 10.0
"""An input that takes more time of the processor than this counts as one that never ends."""
DEEP = 100_000


@dataclass(frozen=True, slots=True)
class Target:
    """A parser of bytes that Holdfast did not just write."""

    name: str
    run: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    """Valid inputs, made by the code that writes the format."""
    may_raise: tuple[type[Exception], ...] = ()
    """What its callers handle beside the errors of Holdfast, as its docstring says."""
    is_json: bool = False
    """Whether inputs are JSON, so that its values can be replaced one by one."""
    is_slow: bool = False
    """Whether an input takes more than some milliseconds: fewer of them are tried."""
    needs: str = ""
    """A package that is no part of `.[dev]`."""


TARGETS: dict[str, Target] = {}


def target(seeds: Callable[[], Iterable[bytes]], **options: Any) -> Callable[[Callable[[bytes], object]], Target]:
    """Register a function as the target of its name."""

    def register(run: Callable[[bytes], object]) -> Target:
        made = Target(run.__name__, run, cache(lambda: _made(seeds)), **options)
        assert made.name not in TARGETS
        TARGETS[made.name] = made
        return made

    return register


def _made(seeds: Callable[[], Iterable[bytes]]) -> list[bytes]:
    """The seeds, with ids and nonces that are the same in each process."""
    chance, before = random.Random(1), os.urandom
    os.urandom = chance.randbytes
    try:
        return list(seeds())
    finally:
        os.urandom = before


class TookTooLong(BaseException):
    """An input takes more time than `MAX_PROCESSOR_S`. No Exception, so that nothing but a test catches it."""


def problem_with(one: Target, data: bytes) -> BaseException | None:
    """What is wrong with how a target takes an input; None if nothing is."""
    try:
        with _limited():
            one.run(data)
    except (HoldfastError, *one.may_raise):
        return None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return error
    return None


@contextmanager
def _limited() -> Iterator[None]:
    """Raise TookTooLong by the time of the processor, which other processes do not use up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, MAX_PROCESSOR_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _stop(*_: object) -> None:
    raise TookTooLong(f"more than {MAX_PROCESSOR_S:g} s of the processor ({time.process_time():.0f} s in all)")


# ---- Inputs ----

HOSTILE_JSON = (
    b"[" * DEEP,
    b"[" * DEEP + b"]" * DEEP,
    b'{"a":' * DEEP,
    b"[" * 900 + b"]" * 900,  # just not too deep for the parser
    b"null",
    b"[]",
    b"{}",
    b'"\\ud800"',
    b"1e999",
    b"NaN",
    b"9" * 5000,
    b"\xff\xfe\x00",
    b"",
)
"""JSON that parsers stumble over, whatever it is meant to say."""
_ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    1 << 70,
    float("inf"),
    float("nan"),
    "",
    "\ud800\0",
    "1e999",
    "9999-12-31T23:59:59.999999-23:59",
    [],
    [[]],
    {},
    {"": None},
)


def inputs(one: Target, *, mutations: int) -> Iterator[bytes]:
    """The seeds, and changes of them: always the same ones."""
    random_ = random.Random(one.name)  # the same in every process, unlike `hash`
    seeds = one.seeds()
    yield from seeds
    if one.is_json:
        varied = [each for seed in seeds for each in _varied_parts(seed)]
        yield from varied if len(varied) <= mutations else random_.sample(varied, mutations)
    for _ in range(mutations):
        yield _mutated(random_.choice(seeds), seeds, random_)


def _mutated(data: bytes, others: list[bytes], random_: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random_.choice((1, 1, 2, 4, 16))):
        at = random_.randrange(len(changed) + 1)
        end = min(len(changed), at + random_.choice((0, 1, 2, 4, 8, 64)))
        kind = random_.randrange(6)
        if kind == 0:
            changed[at:end] = b""
        elif kind == 1:
            changed[at:end] = random_.randbytes(end - at)
        elif kind == 2:
            changed[at:end] = random_.choice((b"\xff", b"\0", b"\x80", b"\x7f")) * (end - at)
        elif kind == 3:
            other = random_.choice(others)
            start = random_.randrange(len(other) + 1)
            changed[at:end] = other[start : start + random_.choice((1, 4, 32))]
        elif kind == 4:
            del changed[at:]
        elif at < len(changed):
            changed[at] ^= 1 << random_.randrange(8)
    return bytes(changed)


def _varied_parts(seed: bytes) -> Iterator[bytes]:
    """A seed with one of its parts changed, of those that are JSON."""
    split = seed.split(SEPARATOR)
    for at, part in enumerate(split):
        try:
            whole = json.loads(part)
        except ValueError:
            continue
        for changed in (*HOSTILE_JSON, *_json_variants(whole)):
            yield SEPARATOR.join([*split[:at], changed, *split[at + 1 :]])


def _json_variants(whole: Any) -> Iterator[bytes]:
    """JSON with one value replaced, or one key removed, or one nested too deeply."""
    for place in _places(whole):
        for value in _ODD_VALUES:
            yield json.dumps(_with(whole, place, value)).encode()
        yield json.dumps(_with(whole, place, "@deep@")).encode().replace(b'"@deep@"', b"[" * 900 + b"]" * 900)
        if place:
            yield json.dumps(_with(whole, place, _GONE)).encode()


_GONE = object()


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _places(inner, (*place, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value[:4]):
            yield from _places(inner, (*place, at))


def _with(value: Any, place: tuple[Any, ...], instead: Any) -> Any:
    if not place:
        return instead
    first, *rest = place
    copy = dict(value) if isinstance(value, dict) else list(value)
    if instead is _GONE and not rest:
        del copy[first]
    else:
        copy[first] = _with(value[first], tuple(rest), instead)
    return copy


# ---- Files ----

_folders: list[tempfile.TemporaryDirectory[str]] = []


@cache
def folder(name: str) -> Path:
    """A folder that goes when the process ends, for the files of a target."""
    if not _folders:
        _folders.append(tempfile.TemporaryDirectory(prefix="hf-fuzz-"))
    made = Path(_folders[0].name).resolve() / name
    made.mkdir(parents=True)
    return made


def parts(data: bytes, count: int) -> list[bytes]:
    """An input as several; those that are missing are empty."""
    found = data.split(SEPARATOR, count - 1)
    return found + [b""] * (count - len(found))


def parsed(data: bytes) -> Any:
    """The value of JSON that somebody else parsed; None if it is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def quietly(work: Callable[[], object]) -> None:
    """Do something whose own errors do not keep the rest from being tried."""
    try:
        work()
    except HoldfastError:
        pass
