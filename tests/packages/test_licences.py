"""The licences of everything that Holdfast brings, and whether a program under MIT may use it."""

from __future__ import annotations

import re
from importlib.metadata import Distribution

import pytest

from packages.closure import brought_by

pytestmark = pytest.mark.extras

PERMISSIVE = re.compile(
    r"MIT|Expat|BSD|Apache|ISC|Python Software Foundation|PSF|Unlicense|Zlib|MPL|Mozilla Public License 2\.0|HPND|0BSD"
    r"|CNRI-Python|BSL-1\.0|CC0|Boost",
    re.IGNORECASE,
)
EXPLAINED = {  # also in docs/install.md
    "apsw": "any licence that the Open Source Initiative approved, at the user's choice",
    "psycopg": "LGPL: used as a library, unchanged",
    "psycopg-binary": "LGPL: used as a library, unchanged",
    "pygit2": "GPL 2 with an exception for programs that link it",
    "praisonaiagents": "names no licence in its package",
}


def licence_of(found: Distribution) -> str:
    """What the package says of itself: an SPDX expression, else its classifiers, else the first line of a text."""
    metadata = found.metadata
    expression = metadata.get("License-Expression")
    if expression:
        return str(expression)
    classifiers = [
        each.rsplit(" :: ", 1)[-1] for each in metadata.get_all("Classifier") or [] if each.startswith("License ::")
    ]
    named = [each for each in classifiers if each != "OSI Approved"]
    if named:
        return ", ".join(named)
    return str(metadata.get("License") or "").strip().split("\n")[0]


def test_every_licence_may_be_used_by_a_program_under_mit() -> None:
    odd = {
        name: licence_of(found)
        for name, found in brought_by("holdfast", frozenset({"all", "jax"})).items()
        if not PERMISSIVE.search(licence_of(found)) and name not in EXPLAINED
    }
    nvidia = {name for name in odd if name.startswith(("nvidia-", "cuda-", "triton"))}  # of a torch with CUDA
    assert {name: odd[name] for name in odd if name not in nvidia} == {}
