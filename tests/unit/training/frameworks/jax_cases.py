"""What `test_jax_arrays.py` runs in a process of its own, which has four devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

from holdfast.errors import Damaged, Refused, Unavailable
from holdfast.training import load_checkpoint, save_checkpoint, wait_for_save

TYPES = [
    "bool", "int2", "int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "bfloat16",
    "float32", "complex64", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn",
]  # fmt: skip


def there_and_back(value: Any, folder: Path, **options: Any) -> Any:
    return load_checkpoint(save_checkpoint(folder / "out", 1, {"x": value})["path"], **options)["x"]


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert getattr(found, "weak_type", None) == getattr(expected, "weak_type", None)
    assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()


@pytest.mark.parametrize("name", TYPES)
def test_every_type_comes_back(name: str, tmp_path: Path) -> None:
    assert_same(
        there_and_back(jnp.arange(6).reshape(2, 3).astype(name), tmp_path), jnp.array([[0, 1, 2], [3, 4, 5]], name)
    )


@pytest.mark.parametrize("name", ["int4", "float8_e3m4", "bfloat16", "float8_e5m2", "float6_e2m3fn", "bcomplex32"])
def test_arrays_of_numpy_of_its_types_come_back(name: str, tmp_path: Path) -> None:
    array = np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, name))
    for value in (array, array.T, array[0, 1]):
        assert_same(there_and_back(value, tmp_path / str(value.shape)), value)


@pytest.mark.parametrize("value", [0, 1.5, 2j, np.float32(3), np.zeros((0, 3), np.float16)])
def test_arrays_of_no_dimension_or_no_element_come_back(value: Any, tmp_path: Path) -> None:
    assert_same(there_and_back(jnp.asarray(value), tmp_path), jnp.asarray(value))


def test_a_type_that_gives_way_stays_so(tmp_path: Path) -> None:
    bits = np.array([0x7FC00001, 0xFFC12345, 0x80000000], np.uint32).view(np.float32)
    weak = jnp.full((3,), 0.0).at[...].set(bits)
    assert weak.weak_type
    assert_same(there_and_back(weak, tmp_path), weak)


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg"])
def test_keys_come_back_and_give_the_same_numbers(implementation: str, tmp_path: Path) -> None:
    key = jax.random.key(7, impl=implementation)
    for keys in (key, jax.random.split(key, 3)):
        found = there_and_back(keys, tmp_path / str(keys.shape))
        assert (found.dtype, found.shape) == (keys.dtype, keys.shape)
        one, other = (each if each.ndim == 0 else each[2] for each in (found, keys))
        assert_same(jax.random.normal(one, (5,)), jax.random.normal(other, (5,)))


def test_a_key_that_makes_no_sense_is_damage(tmp_path: Path) -> None:
    from holdfast.training.frameworks import jax_arrays

    with pytest.raises(Damaged, match="key"):
        jax_arrays.rebuild({"key": "nonsense"}, [(memoryview(bytes(8)), "U32", (2,))], None)


def test_sharded_array_is_restored_whole_and_can_be_resharded(tmp_path: Path) -> None:
    mesh = jax.make_mesh((4,), ("x",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    value = jax.device_put(jnp.arange(8.0), spread)
    assert_same(there_and_back(value, tmp_path), jnp.arange(8.0))
    again = load_checkpoint(tmp_path / "out", map_location=spread)["x"]
    assert again.sharding == spread
    assert load_checkpoint(tmp_path / "out", map_location=jax.devices()[2])["x"].devices() == {jax.devices()[2]}


def test_64_bits_are_not_cut_to_32(tmp_path: Path) -> None:
    with jax.enable_x64(True):
        values = [jnp.array([2**40 + 1]), jnp.array([0.1], "float64"), jnp.array([0.1j], "complex128")]
        for at, value in enumerate(values):
            assert_same(there_and_back(value, tmp_path / str(at)), value)
    for at in range(3):
        with pytest.raises(Refused, match=r"64|128"):
            load_checkpoint(tmp_path / str(at) / "out")


def test_what_has_no_value_is_refused_by_name(tmp_path: Path) -> None:
    def save(x: Any) -> Any:
        save_checkpoint(tmp_path / "out", 1, {"deep": [x]})
        return x

    with pytest.raises(Refused, match=r"deep\.0 cannot be saved: it is being traced"):
        jax.jit(save)(jnp.ones(3))
    given = jnp.ones(3)
    jax.jit(lambda x: x + 1, donate_argnums=0)(given)
    with pytest.raises(Refused, match=r"deep\.0 cannot be saved: it was donated"):
        save(given)
    assert not (tmp_path / "out").exists()


def test_a_state_of_three_libraries_is_saved_beside_the_loop(tmp_path: Path) -> None:
    state = {"jax": jnp.arange(3), "numpy": np.arange(3), "torch": torch.arange(3)}
    save_checkpoint(tmp_path / "out", 1, state, block=False)
    state["numpy"][:] = 9
    state["torch"][:] = 9
    jax.jit(lambda x: x * 9, donate_argnums=0)(state["jax"])
    wait_for_save()
    for options in ({}, {"mmap": True}, {"weights_only": True}):
        found = load_checkpoint(tmp_path / "out", **options)
        assert [np.asarray(found[name]).tolist() for name in state] == [[0, 1, 2]] * 3
        assert isinstance(found["jax"], jax.Array)


def test_a_device_of_jax_is_none_for_tensors(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "out", 1, {"x": torch.ones(2)})
    with pytest.raises(Unavailable, match="cannot move a tensor to"):
        load_checkpoint(tmp_path / "out", map_location=jax.devices()[0])
