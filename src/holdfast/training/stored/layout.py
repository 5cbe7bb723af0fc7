"""Names of the files of a run, and the version of their format."""

from __future__ import annotations

import re

from holdfast.errors import Damaged, Refused

SCHEMA_VERSION = 1
KIND = "holdfast.training"

MANIFEST = "manifest.json"
STATE = "state.json"
INDEX = "model.safetensors.index.json"
LAST = "last"
BEST = "best.json"
PRIVATE = ".holdfast"
"""The private folder: the lock, temporary files and folders, the pins."""

_STEP_MAX = 2**63 - 1
_STEP = re.compile(r"step-(\d{8,})")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def step_name(step: int) -> str:
    """Return the name of a step's folder; names sort like steps."""
    return f"step-{step:08d}"


def step_of(name: str) -> int | None:
    """Return the step whose folder has this name; None if it is not the name of a step."""
    found = _STEP.fullmatch(name)
    return int(found[1]) if found and step_name(int(found[1])) == name else None


def shard_name(number: int, total: int) -> str:
    """Return the name of a shard, counted from 1, in the style of Hugging Face."""
    return f"model-{number:05d}-of-{total:05d}.safetensors"


def rank_shard_name(rank: int, number: int, _total: int) -> str:
    """Return the name of a shard of one of several processes, which does not know how many there are in total."""
    return f"model-rank{rank:05d}-{number:05d}.safetensors"


def check_file_name(name: object, where: str) -> str:
    """Return a stored file name; Damaged if it could point outside its folder."""
    if not isinstance(name, str) or not _FILE.fullmatch(name):
        raise Damaged(f"{where} is corrupt: bad file name {name!r}", hint="Use another checkpoint.")
    return name


def check_step(step: object) -> int:
    """Return a step; Refused unless it is a whole number, 0 or more."""
    if isinstance(step, bool) or not hasattr(step, "__index__") or (number := step.__index__()) < 0:
        raise Refused(f"invalid step {step!r}", hint="Give a whole number, 0 or more.")
    if number > _STEP_MAX:
        raise Refused("the step is too large", hint=f"The greatest is {_STEP_MAX}.")
    return int(number)


def check_schema(found: object, where: str) -> None:
    """Refuse what a newer version wrote; Damaged if there is no version."""
    if isinstance(found, bool) or not isinstance(found, int):
        raise Damaged(f"{where} has no schema_version", hint="Use another checkpoint.")
    if found > SCHEMA_VERSION:
        raise Refused(
            f"{where} has schema_version {found}, and this version of Holdfast reads up to {SCHEMA_VERSION}",
            hint="Use the version of Holdfast that wrote it, or a newer one.",
        )
