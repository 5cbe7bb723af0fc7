"""git's object format: objects, packs, refs of a bare repository. Knows nothing about workspaces.

All content is in packs; a ref for each checkpoint leads to it.

    store       the repository: objects through all packs
    refs        a tag for each checkpoint
    objects     how objects are encoded; names that git forbids in a tree
    packs       reading one pack, writing one, restoring a lost index
    pack_merge, git_repack    packs become fewer: by copying; by the git program, with deltas
    git_files   loose objects and refs that a git program wrote into the store
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it, without the cost of `typing`
if TYPE_CHECKING:
    from holdfast.shadowgit.objects import (
        EMPTY_TREE,
        EXECUTABLE_MODE,
        FILE_MODE,
        FOLDER_MODE,
        LINK_MODE,
        ObjectKind,
        PackEntry,
        TreeEntry,
        decode_commit,
        encode_commit,
        encode_entry,
        encode_tree,
        object_id,
        real_name,
        store_name,
    )
    from holdfast.shadowgit.pack_merge import free_unneeded, merge_packs, packs_due, reachable, room_needed, trees_of
    from holdfast.shadowgit.packs import Pack, PackWriter
    from holdfast.shadowgit.store import ObjectStore

__all__ = [
    "EMPTY_TREE",
    "EXECUTABLE_MODE",
    "FILE_MODE",
    "FOLDER_MODE",
    "LINK_MODE",
    "ObjectKind",
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

_MODULES = {
    "pack_merge": {"free_unneeded", "merge_packs", "packs_due", "reachable", "room_needed", "trees_of"},
    "packs": {"Pack", "PackWriter"},
    "store": {"ObjectStore"},
}

if not TYPE_CHECKING:  # a type checker that saw this would accept any name

    def __getattr__(name: str) -> object:
        """Load a module when a name of it is first used: listing checkpoints needs refs, and no objects."""
        if name not in __all__:
            raise AttributeError(f"module 'holdfast.shadowgit' has no attribute {name!r}")
        import importlib

        module = next((module for module, names in _MODULES.items() if name in names), "objects")
        found = globals()[name] = getattr(importlib.import_module(f"holdfast.shadowgit.{module}"), name)
        return found
