"""What `last` keeps of each checkpoint in an object store, so that a look does not have to read their manifests."""

from __future__ import annotations

import json
from typing import Any

from holdfast.errors import Damaged
from holdfast.training.folder import Found
from holdfast.training.stored import digests
from holdfast.training.stored.layout import LAST
from holdfast.training.stored.manifest import Brief, Manifest

_SAME = ("step", "sequence", "created_at", "metrics", "metadata", "config_hash")


def history(found: list[Found], tags: dict[int, str]) -> dict[str, Any]:
    """What to write into `last`: of each step an entry; environments, which are mostly the same, once each."""
    environments: dict[str, Any] = {}
    entries = []
    for one in found:
        manifest = one.manifest
        text = json.dumps(manifest.environment, sort_keys=True)
        name = digests.digest(text.encode(), digests.preferred())[:16]
        environments[name] = manifest.environment
        about = {field: getattr(manifest, field) for field in _SAME}
        sizes = {"bytes": manifest.total_bytes, "tensors": manifest.n_tensors, "files": manifest.n_files}
        entries.append(about | sizes | {"environment": name, "tag": tags.get(one.step, "")})
    return {"history": entries, "environments": environments}


def remembered(marker: dict[str, Any] | None) -> dict[tuple[str, int], Manifest]:
    """What `last` says of checkpoints, by the tag of the manifest and the step. What makes no sense is left out."""
    found: dict[tuple[str, int], Manifest] = {}
    entries, environments = (marker or {}).get("history"), (marker or {}).get("environments")
    for entry in entries if isinstance(entries, list) else []:
        try:
            manifest = _brief(entry, environments if isinstance(environments, dict) else {})
            found[entry["tag"], manifest.step] = manifest
        except (KeyError, TypeError, ValueError, AttributeError, Damaged):
            continue  # the manifest itself is read instead
    return found


def _brief(entry: dict[str, Any], environments: dict[str, Any]) -> Manifest:
    about = {field: entry[field] for field in _SAME}
    sizes = {"n_bytes": entry["bytes"], "tensor_count": entry["tensors"], "file_count": entry["files"]}
    environment = environments[entry["environment"]]
    manifest = Brief(**about, digest_algorithm="", files={}, tensors={}, environment=environment, **sizes)
    if any(
        isinstance(number, bool) or not isinstance(number, int)
        for number in (manifest.step, manifest.sequence, *sizes.values())
    ):
        raise Damaged(f"{LAST} is not as it was written")
    _ = manifest.timestamp
    for name in manifest.metrics:
        if not isinstance(manifest.metric(name), int | float):
            raise Damaged(f"{LAST} is not as it was written")
    return manifest
