"""Random states in the form of codex_ml: lists of numbers that fit into JSON, of Python, NumPy and PyTorch."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from holdfast.compat.codex_ml.frameworks import np, torch


def capture() -> dict[str, Any]:
    """Return the random states as they are now."""
    version, words, gauss = random.getstate()
    found: dict[str, Any] = {"python": [version, list(words), gauss]}
    if np is not None:
        name, keys, *rest = np.random.get_state()
        found["numpy"] = [
            str(name),
            [int(key) for key in keys],
            *(float(each) if isinstance(each, float) else int(each) for each in rest),
        ]
    if torch is not None:
        states = {"cpu": torch.get_rng_state().tolist()}
        if torch.cuda.is_available():
            states["cuda"] = [state.tolist() for state in torch.cuda.get_rng_state_all()]
        found["torch"] = states
    return found


def restore(state: Mapping[str, Any]) -> None:
    """Restore random states of `capture`, or of a version of codex_ml. ValueError if they are damaged."""
    try:
        _restore(state)
    except (KeyError, IndexError, TypeError, RuntimeError, OverflowError) as error:
        raise ValueError(f"stored random state is corrupt: {error}") from None


def _restore(state: Mapping[str, Any]) -> None:
    python = state.get("python_resume", state.get("python"))
    if isinstance(python, Mapping):
        python = (python["version"], python["state"], python.get("gauss"))
    if python:
        random.setstate((python[0], tuple(int(word) for word in python[1]), python[2]))
    numpy = state.get("numpy_resume", state.get("numpy"))
    if isinstance(numpy, Mapping):
        numpy = (numpy["key"], numpy["state"], numpy["pos"], numpy["has_gauss"], numpy["cached_gaussian"])
    if numpy and np is not None:
        np.random.set_state((str(numpy[0]), np.array(numpy[1], dtype=np.uint32), *map(_number, numpy[2:])))
    if torch is None:
        return
    states = state.get("torch_resume", state.get("torch", {}))
    states = states if isinstance(states, Mapping) else {"cpu": states}
    cpu = states.get("cpu", state.get("torch_cpu"))
    if cpu is not None:
        torch.set_rng_state(_tensor(cpu))
    cuda = states.get("cuda", state.get("torch_cuda", state.get("torch_cuda_all")))
    if cuda and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([_tensor(each) for each in cuda])


def _tensor(values: Any) -> Any:
    values = values["data"] if isinstance(values, Mapping) else values
    return torch.as_tensor(values, dtype=torch.uint8)


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, float) else int(value)


def seed_all(seed: int) -> dict[str, int]:
    """Seed Python, NumPy and PyTorch; return the seeds."""
    random.seed(seed)
    seeds = {"python": seed}
    if np is not None:
        np.random.seed(seed % 2**32)
        seeds["numpy"] = seed
    if torch is not None:
        torch.manual_seed(seed)
        seeds["torch"] = seed
    return seeds
