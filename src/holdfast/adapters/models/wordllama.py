"""The default model: the average of WordLlama's token vectors. No torch, no network, thousands of texts a second.

Only two files of its package are used, weights and tokenizer; its code, which may download others, is not loaded. The
model is Matryoshka: the first 128 or 64 of its 256 numbers are a valid vector, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from holdfast.errors import Extra, Unavailable

with Extra("index"):
    import numpy as np
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_HINT = "Install it with: pip install 'holdfast[index]'"


class WordLlama:
    """A model with 256 dimensions: `embed={"dense": WordLlama()}`."""

    model = "wordllama"
    revision = "l2_supercat"
    stage_name = "holdfast.adapters.models.wordllama.WordLlama"
    version = "1"
    usd_per_mtok = 0.0
    dimension = 256

    def __init__(self) -> None:
        folder = _folder()
        try:
            (self._vectors,) = load_file(folder / _WEIGHTS).values()
            self._tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
        except Exception as error:  # two native libraries, which raise various types for a damaged file
            raise Unavailable(f"cannot read the files of wordllama: {error}", hint=_HINT) from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def __call__(self, texts: Sequence[str]) -> list[Any]:
        """Return one vector for each text; it does not depend on the other texts."""
        encoded = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [self._average(each.ids) for each in encoded]

    def _average(self, ids: list[int]) -> Any:
        if not ids:
            return np.zeros(self.dimension, dtype="f4")
        return self._vectors[ids].astype("f4").mean(axis=0)


def _folder() -> Path:
    found = find_spec("wordllama")
    if found is None or not found.submodule_search_locations:
        raise Unavailable("the package wordllama is not installed", hint=_HINT)
    return Path(next(iter(found.submodule_search_locations)))
