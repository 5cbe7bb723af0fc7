"""git's object format: objects, packs, refs of a bare repository. Knows nothing of workspaces."""

from holdfast.shadowgit.merge import merge_packs, packs_due, reachable, trees_of
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
    "merge_packs",
    "object_id",
    "packs_due",
    "reachable",
    "real_name",
    "store_name",
    "trees_of",
]
