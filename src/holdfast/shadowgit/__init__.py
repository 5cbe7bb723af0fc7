"""git's object format: objects, packs, refs of a bare repository. Knows nothing of workspaces.

Whatever is stored is in packs; a ref for each checkpoint leads to it.

    store       the repository: objects through all packs
    refs        a tag for each checkpoint
    objects, names       how objects are spelled; names that git forbids in a tree
    pack, writer         reading one pack; writing one
    merge, repack        packs become fewer: by copying; by the git program, with deltas
    reindex     a pack that has lost its index
    beside      what somebody's git keeps beside what we write
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it, without the cost of `typing`
if TYPE_CHECKING:
    from holdfast.shadowgit.merge import free_unneeded, merge_packs, packs_due, reachable, room_needed, trees_of
    from holdfast.shadowgit.names import real_name, store_name
    from holdfast.shadowgit.objects import (
        EMPTY_TREE,
        EXECUTABLE_MODE,
        FILE_MODE,
        FOLDER_MODE,
        LINK_MODE,
        Kind,
        PackEntry,
        TreeEntry,
        decode_commit,
        encode_commit,
        encode_entry,
        encode_tree,
        object_id,
    )
    from holdfast.shadowgit.pack import Pack
    from holdfast.shadowgit.store import ObjectStore
    from holdfast.shadowgit.writer import PackWriter

__all__ = [
    "EMPTY_TREE",
    "EXECUTABLE_MODE",
    "FILE_MODE",
    "FOLDER_MODE",
    "LINK_MODE",
    "Kind",
    "ObjectStore",
    "Pack",
    "PackEntry",
    "PackWriter",
    "TreeEntry",
    "decode_commit",
    "encode_commit",
    "encode_entry",
    "encode_tree",
    "free_unneeded",
    "merge_packs",
    "object_id",
    "packs_due",
    "reachable",
    "real_name",
    "room_needed",
    "store_name",
    "trees_of",
]

_ROOMS = {
    "merge": {"free_unneeded", "merge_packs", "packs_due", "reachable", "room_needed", "trees_of"},
    "names": {"real_name", "store_name"},
    "pack": {"Pack"},
    "store": {"ObjectStore"},
    "writer": {"PackWriter"},
}

if not TYPE_CHECKING:  # a checker that saw this would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Load a name when it is first asked for: who lists checkpoints reads refs and no objects."""
        if name not in __all__:
            raise AttributeError(f"module 'holdfast.shadowgit' has no attribute {name!r}")
        import importlib

        room = next((room for room, names in _ROOMS.items() if name in names), "objects")
        return getattr(importlib.import_module(f"holdfast.shadowgit.{room}"), name)
