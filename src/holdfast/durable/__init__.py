"""The only package that changes a disk: writes, syncs, renames into place, takes locks; SQLite and PostgreSQL.

Everything goes through `disk()`, one small object, so that a test can put a faulty one in its place and interrupt
every write, rename, sync and removal in turn (`holdfast.testing.faulty_disks`). What not every system can do is in
`platform`.
"""

from holdfast.durable.disk import ASIDE, Disk, disk, open_to_owner, use_disk
from holdfast.durable.files import (
    make_folder,
    parse_json,
    parse_toml,
    private,
    read_file,
    remove_tree,
    sync_folder,
    write_atomically,
)
from holdfast.durable.lock import Lock

__all__ = [
    "ASIDE",
    "Disk",
    "Lock",
    "disk",
    "make_folder",
    "open_to_owner",
    "parse_json",
    "parse_toml",
    "private",
    "read_file",
    "remove_tree",
    "sync_folder",
    "use_disk",
    "write_atomically",
]
