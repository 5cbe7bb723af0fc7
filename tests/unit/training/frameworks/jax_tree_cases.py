"""What `test_jax_arrays.py` runs of trees of JAX, Optax and Flax, in a process of its own, which has four devices."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.training import train_state

from holdfast import serde
from holdfast.errors import Refused
from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint, wait_for_save

PARAMS = {"dense": {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(3, jnp.bfloat16)}, "head": {"w": jnp.ones(3)}}
SCHEDULE = optax.linear_schedule(1e-2, 1e-4, 10)
LABELS = {"dense": {"w": "slow", "b": "fast"}, "head": {"w": "fast"}}
MASK = {"dense": {"w": True, "b": False}, "head": {"w": True}}
OPTIMIZERS = {
    "sgd": optax.sgd(1e-2),
    "adam": optax.adam(1e-3),
    "adamw": optax.adamw(SCHEDULE, mask=MASK),
    "adafactor": optax.adafactor(1e-3),
    "lion": optax.lion(1e-3),
    "chain": optax.chain(optax.clip_by_global_norm(1.0), optax.trace(0.9), optax.scale_by_schedule(SCHEDULE)),
    "masked": optax.masked(optax.adam(1e-3), MASK),
    "multi_transform": optax.multi_transform({"slow": optax.adam(1e-4), "fast": optax.sgd(1e-2, 0.9)}, LABELS),
    "multi_steps": optax.MultiSteps(optax.adam(1e-3), every_k_schedule=3),
    "inject_hyperparams": optax.inject_hyperparams(optax.adam)(learning_rate=SCHEDULE, b1=0.8),
    "lookahead_ema": optax.chain(optax.adam(1e-3), optax.ema(0.99)),
    "apply_if_finite": optax.apply_if_finite(optax.adam(1e-3), 5),
    "noise": optax.add_noise(0.1, 0.5, key=jax.random.key(3)),
}


def assert_same_tree(found: Any, expected: Any) -> None:
    """The same classes all the way down, and the same bits."""
    assert jax.tree_util.tree_structure(found) == jax.tree_util.tree_structure(expected)
    for one, other in zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(expected), strict=True):
        assert type(one) is type(other)
        if not isinstance(one, jax.Array):
            assert one == other
            continue
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert getattr(one, "weak_type", None) == getattr(other, "weak_type", None)
        if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def trained(tx: Any, steps: int = 2) -> tuple[Any, Any]:
    params, state = PARAMS, tx.init(PARAMS)
    for _ in range(steps):
        updates, state = tx.update(jax.tree.map(jnp.ones_like, params), state, params)
        params = optax.apply_updates(params, updates)
    return params, state


def no_tensor(name: str) -> Any:
    raise KeyError(name)


def there_and_back(value: Any, folder: Path, **options: Any) -> Any:
    return load_checkpoint(save_checkpoint(folder / "out", 1, {"x": value})["path"], **options)["x"]


# optax


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_states_of_optax_come_back(name: str, tmp_path: Path) -> None:
    tx = OPTIMIZERS[name]
    params, state = trained(tx)
    meta = save_checkpoint(tmp_path, 1, {"params": params, "opt": state})
    assert meta["notes"] == []
    for options in ({}, {"like": {"params": PARAMS, "opt": tx.init(PARAMS)}}):
        found = load_checkpoint(tmp_path, **options)
        assert_same_tree(found, {"params": params, "opt": state})
        grads = jax.tree.map(jnp.ones_like, params)
        again, expected = tx.update(grads, found["opt"], found["params"]), tx.update(grads, state, params)
        assert_same_tree(again, expected)  # a run goes on as if it had never stopped


def test_a_stored_name_imports_nothing(tmp_path: Path) -> None:
    """P7: a process that has not loaded the library gets an error, and stored bytes do not make it load the library."""
    save_checkpoint(tmp_path, 1, {"opt": trained(OPTIMIZERS["adam"])[1]}, rng=False)
    code = (
        "import sys\nfrom holdfast.errors import Refused\nfrom holdfast.training import load_checkpoint\n"
        "try:\n    load_checkpoint(sys.argv[1])\nexcept Refused as error:\n    print(error)\n"
        "assert not [name for name in sys.modules if name.startswith(('optax', 'flax'))]\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert "opt.0 is of class optax._src.transform.ScaleByAdamState" in ran.stdout


@pytest.mark.parametrize(
    "name",
    [
        "os.system", "optax.adam", "optax._src.base.EmptyState.x", "builtins.tuple", "jax.jit", f"{__name__}.Mine",
        f"{optax.MultiSteps.__module__}.MultiSteps",
    ],
)  # fmt: skip
def test_a_name_that_is_no_state_makes_nothing(name: str, tmp_path: Path) -> None:
    from holdfast.training.state_tree import Builder

    with pytest.raises(Refused, match="which is unknown"):
        Builder(
            {"$node": {"class": name, "keys": ["x"], "values": [1]}}, lambda name: (memoryview(b""), "U8", ())
        ).build()


def test_fields_that_the_class_no_longer_has_are_told(tmp_path: Path) -> None:
    from holdfast.training.state_tree import Builder

    tree = {"$node": {"class": optax.TraceState.__module__ + ".TraceState", "keys": ["other"], "values": [1]}}
    with pytest.raises(Refused, match="with other, but here that class has trace"):
        Builder(tree, no_tensor).build()


def test_parts_of_a_state_come_as_mappings(tmp_path: Path) -> None:
    _, state = trained(OPTIMIZERS["adam"])
    path = save_checkpoint(tmp_path, 1, {"opt": state, "lr": 0.1})["path"]
    assert (
        load_checkpoint(path, only=["opt.0.mu"])["opt"][0]["mu"]["head"]["w"].tolist()
        == state[0].mu["head"]["w"].tolist()
    )
    assert sorted(load_checkpoint(path, weights_only=True)["opt"][0]) == ["count", "mu", "nu"]
    assert load_checkpoint(path, mmap=True)["opt"][0]["count"] == state[0].count
    for options in ({"only": ["opt"]}, {"weights_only": True}, {"mmap": True}):
        with pytest.raises(Refused, match="like cannot be combined with loading a part"):
            load_checkpoint(path, like={"opt": state}, **options)


# flax


def new_train_state() -> Any:
    return train_state.TrainState.create(apply_fn=lambda *args: None, params=PARAMS, tx=OPTIMIZERS["adam"])


def test_train_state_gets_its_functions_from_the_example(tmp_path: Path) -> None:
    state = new_train_state().apply_gradients(grads=jax.tree.map(jnp.ones_like, PARAMS))
    meta = save_checkpoint(tmp_path, 1, {"train": state})
    [note] = meta["notes"]
    assert "train is of class flax.training.train_state.TrainState" in note
    assert "like=" in note
    fresh = new_train_state()
    found = load_checkpoint(tmp_path, like={"train": fresh})["train"]
    assert type(found) is train_state.TrainState
    assert (found.apply_fn, found.tx) == (fresh.apply_fn, fresh.tx)
    assert_same_tree((found.step, found.params, found.opt_state), (state.step, state.params, state.opt_state))
    assert fresh.step == 0  # the example is left alone
    with pytest.raises(Refused, match=r"train is of class flax\.training\.train_state\.TrainState") as refused:
        load_checkpoint(tmp_path)
    assert "like=" in refused.value.hint


def test_a_state_that_is_an_object_itself_comes_back(tmp_path: Path) -> None:
    state = new_train_state()
    save_checkpoint(tmp_path, 1, state)
    assert_same_tree(load_checkpoint(tmp_path, like=state), state)
    assert set(json.loads((tmp_path / "step-00000001" / "manifest.json").read_text())["tensors"]) >= {
        "params.dense.w", "opt_state.0.mu.head.w",
    }  # fmt: skip


def test_a_manager_resumes_a_train_state(tmp_path: Path) -> None:
    state = new_train_state().apply_gradients(grads=jax.tree.map(jnp.ones_like, PARAMS))
    CheckpointManager(tmp_path).save(1, {"train": state}, block=False)
    wait_for_save()
    resumed = CheckpointManager(tmp_path).resume(like={"train": new_train_state()})
    assert resumed is not None
    assert_same_tree(resumed.state["train"].params, state.params)


def test_frozen_dicts_come_back(tmp_path: Path) -> None:
    frozen = flax.core.freeze(PARAMS)
    assert_same_tree(there_and_back(frozen, tmp_path / "a"), frozen)
    assert_same_tree(there_and_back({"p": frozen}, tmp_path / "b", like={"x": {"p": frozen}}), {"p": frozen})


class Model(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.layers = nnx.List([nnx.Linear(2, 3, rngs=rngs), nnx.Linear(3, 3, rngs=rngs)])
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.drop(self.norm(x))


def test_states_of_nnx_come_back(tmp_path: Path) -> None:
    model = Model(nnx.Rngs(0))
    model(jnp.ones((4, 2)))  # moves the statistics and the counter of the random numbers
    _, state = nnx.split(model)
    save_checkpoint(tmp_path, 1, {"model": state})
    graph, fresh = nnx.split(Model(nnx.Rngs(1)))
    found = load_checkpoint(tmp_path, like={"model": fresh})["model"]
    assert type(found) is nnx.State
    assert_same_tree(found, state)
    merged = nnx.merge(graph, found)
    assert merged(jnp.ones((4, 2))).tolist() == model(jnp.ones((4, 2))).tolist()


def test_parts_of_a_graph_come_back(tmp_path: Path) -> None:
    model = Model(nnx.Rngs(0))
    tx = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    _, params, rest = nnx.split(model, nnx.Param, ...)
    state = {"params": params, "rest": rest, "opt": nnx.state(tx)}
    save_checkpoint(tmp_path, 1, state)
    assert_same_tree(load_checkpoint(tmp_path, like=state), state)


# devices


def test_arrays_are_spread_as_the_example_is(tmp_path: Path) -> None:
    mesh = jax.make_mesh((4,), ("x",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    params = {"w": jax.device_put(jnp.arange(8.0), spread), "b": jnp.ones(2)}
    state = {"params": params, "opt": optax.adam(1e-3).init(params)}
    save_checkpoint(tmp_path, 1, state)
    found = load_checkpoint(tmp_path, like=state)
    assert_same_tree(found, state)
    assert found["params"]["w"].sharding == spread
    assert found["opt"][0].mu["w"].sharding == state["opt"][0].mu["w"].sharding
    shapes = {"params": jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), params)}
    assert load_checkpoint(tmp_path, like=shapes)["params"]["w"].sharding == spread


# others


@jax.tree_util.register_pytree_node_class
class Pair:
    """Registered without names, and with something that is no part of the tree."""

    def __init__(self, left: Any, right: Any, name: str) -> None:
        self.left, self.right, self.name = left, right, name

    def tree_flatten(self) -> Any:
        return (self.left, self.right), self.name

    @classmethod
    def tree_unflatten(cls, name: str, children: Any) -> Pair:
        return cls(*children, name)


class Mine(NamedTuple):
    count: Any
    inner: Any


def test_classes_of_the_user_come_back_with_an_example(tmp_path: Path) -> None:
    state = {"pair": Pair(jnp.ones(2), {"k": None, "n": 3}, "a"), "mine": Mine(1, [jnp.zeros(1), jax.random.key(1)])}
    assert len(save_checkpoint(tmp_path, 1, state)["notes"]) == 2
    found = load_checkpoint(tmp_path, like=state)
    assert_same_tree(found, state)
    assert found["pair"].name == "a"
    with pytest.raises(Refused, match=r"pair is of class .*Pair, which is unknown"):
        load_checkpoint(tmp_path)


@serde.register("tests.Registered")
class Registered(NamedTuple):
    count: Any
    weights: Any


def test_registered_classes_need_no_example(tmp_path: Path) -> None:
    state = {"a": Registered(1, {"w": jnp.ones(3), "opt": optax.adam(1.0).init(jnp.ones(3))})}
    assert save_checkpoint(tmp_path, 1, state)["notes"] == []
    assert_same_tree(load_checkpoint(tmp_path), state)


@pytest.mark.parametrize(
    ("like", "what"),
    [
        ({"opt": (1, 2)}, "it is of class TraceState in the checkpoint"),
        ({"opt": [1]}, "it is a tuple of length 2 in the checkpoint, and a list of length 1 in like"),
        (
            {"opt": OPTIMIZERS["adam"].init(PARAMS)},
            "TraceState in the checkpoint, and of .*ScaleByAdamState in like",
        ),
        ({"opt": OPTIMIZERS["sgd"].init(PARAMS), "more": 1}, "like has 'more', which the checkpoint does not have"),
        ([1], "it is a dict in the checkpoint"),
        ({"step": {}}, "step does not match like: .* a int in the checkpoint, and a dict in like"),
    ],
)
def test_another_structure_is_refused_with_its_path(like: Any, what: str, tmp_path: Path) -> None:
    state = {"opt": optax.sgd(1e-2, momentum=0.9).init(PARAMS), "step": 3}
    save_checkpoint(tmp_path, 1, state)
    with pytest.raises(Refused, match=what.replace("class TraceState", r"class optax\S*TraceState")):
        load_checkpoint(tmp_path, like=like)


def test_what_is_in_no_example_comes_as_it_would_without(tmp_path: Path) -> None:
    state = {"train": new_train_state(), "opt": trained(OPTIMIZERS["adam"])[1], "epoch": 3}
    save_checkpoint(tmp_path, 1, state)
    assert_same_tree(load_checkpoint(tmp_path, like={"train": state["train"]}), state)


def test_what_an_object_holds_is_refused_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"mine\.inner\.f cannot be saved"):
        save_checkpoint(tmp_path, 1, {"mine": Mine(1, {"f": lambda: None})})


def test_a_diff_names_what_objects_hold(tmp_path: Path) -> None:
    from holdfast.training.checkpoints import open_run
    from holdfast.training.diff import compare

    for step in (1, 2):
        save_checkpoint(tmp_path, step, {"mine": Mine(step, {"w": jnp.full(2, float(step))})}, rng=False)
    run = open_run(tmp_path)
    found = compare(run.get(1), run.get(2), run)
    assert [change.name for change in found.changes] == ["mine.inner.w"]
    assert found.values == {"mine.count": (1, 2)}
