"""The nesting of a state, put together of what `torch.distributed.checkpoint` has made flat."""

from __future__ import annotations

from typing import Any


def tree_of(described: dict[str, Any]) -> Any:
    """The state as `load_checkpoint` puts it together, on one machine and without DCP."""
    root = _Branch()
    for fqn in (*described["values"], *described["tensors"]):
        if fqn in described["values"]:
            leaf = described["values"][fqn]
        else:
            about = described["tensors"][fqn]
            node = {"names": [chunk["name"] for chunk in about["chunks"]], "kind": "torch", "shape": about["size"]}
            node["chunks"] = [chunk["offsets"] for chunk in about["chunks"]]
            if about["stored_as"]:
                node["dtype"] = about["stored_as"]
            leaf = {"$tensor": node}
        _put(root, described["paths"].get(fqn) or [fqn], leaf)
    return _listed(root)


def _put(root: dict[Any, Any], path: list[Any], leaf: Any) -> None:
    for step in path[:-1]:
        root = root.setdefault(step, _Branch())
    root[path[-1]] = leaf


class _Branch(dict[Any, Any]):
    """A dict that is not yet known to be a list."""


def _listed(tree: Any) -> Any:
    """Numbers for keys mean that it was a list."""
    if not isinstance(tree, _Branch):
        return tree
    if tree and all(isinstance(key, int) for key in tree):
        return [_listed(tree[key]) for key in sorted(tree)]
    plain = {key: _listed(value) for key, value in tree.items()}
    if any(key.startswith("$") for key in plain):
        return {"$dict": [[key, value] for key, value in plain.items()]}
    return plain
