"""Whether a store is the user's own. Who can write to a store decides what a restore writes and deletes (P7).

A store is refused unless the user owns it and nobody else can enter it, and unless nobody else could have replaced it:
every folder above belongs to the user or to root, and only they can write to it; except for folders with the sticky
bit, such as /tmp, and for those below a folder that nobody else can enter. Root may also use the stores of the user who
called sudo, as in git. In a user namespace, folders above may belong to an owner without a number there: the system
outside.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from holdfast.durable import platform
from holdfast.errors import Refused, Remedy
from holdfast.shadowgit.refs import CONFIG

_OVERFLOW_ID = 65534
_TRUST = Remedy("trust_store")
_ELSEWHERE = "Or keep stores elsewhere, also those of hooks: set HOLDFAST_STORE_ROOT."


def check_private(store: Path, environ: Mapping[str, str]) -> None:
    """Refuse a store that is not the user's own; one that does not exist yet is fine. Reads nothing in it (P7)."""
    owners = _owners(environ)
    try:
        found = os.stat(store)
    except FileNotFoundError:
        found = None
    if found is not None:
        _check_store(store, found, owners)
    for folder in reversed(store.parents):
        try:
            above = os.stat(folder)
        except FileNotFoundError:
            return
        _check_above(folder, above, owners)
        if not above.st_mode & 0o011:
            return  # private, so modes below do not matter: a home folder of 0700 and a umask of 002


def is_own(store: Path, environ: Mapping[str, str]) -> bool:
    """Whether the user, or the one who called sudo, owns a folder, and nobody else can enter it."""
    found = os.stat(store)
    return found.st_uid in _owners(environ) and not found.st_mode & 0o077


def _check_store(store: Path, found: os.stat_result, owners: set[int]) -> None:
    if found.st_uid not in owners:
        raise Refused(f"the store {store} belongs to another user ({_name(found.st_uid)})", remedy=_TRUST)
    if found.st_mode & 0o077 and _is_a_store(store):
        raise Refused(
            f"the store {store} is open to other users (mode {stat.S_IMODE(found.st_mode):o})",
            hint=f"Make it private: chmod 700 {store}.",
            remedy=_TRUST,
        )


def _check_above(folder: Path, found: os.stat_result, owners: set[int]) -> None:
    if found.st_uid not in {0, *owners} and not (found.st_uid == _OVERFLOW_ID and platform.is_in_user_namespace()):
        raise Refused(
            f"{folder}, a folder above the store, belongs to {_name(found.st_uid)}",
            hint="Keep stores elsewhere, also those of hooks: set HOLDFAST_STORE_ROOT.",
            remedy=_TRUST,
        )
    is_writable = found.st_mode & 0o002 or (found.st_mode & 0o020 and not _is_private_group(found.st_gid))
    if is_writable and not found.st_mode & stat.S_ISVTX:
        raise Refused(
            f"other users can write to {folder}, a folder above the store (mode {stat.S_IMODE(found.st_mode):o})",
            hint=f"Forbid it: chmod go-w {folder}. {_ELSEWHERE}",
            remedy=_TRUST,
        )


def _owners(environ: Mapping[str, str]) -> set[int]:
    me, sudo = os.geteuid(), environ.get("SUDO_UID", "")
    return {me, int(sudo)} if me == 0 and sudo.isascii() and sudo.isdigit() else {me}


def _is_private_group(gid: int) -> bool:
    """Whether a group is root's, or has only this user, as many systems create one per user."""
    if gid == 0:
        return True
    import grp  # start-up cost, for folders that a group may write to
    import pwd

    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _is_a_store(folder: Path) -> bool:
    """Whether a folder is a store at all: an empty one is made private before use, anything else is refused."""
    try:
        return (folder / "holdfast").is_dir() or (folder / "config").read_bytes() == CONFIG
    except OSError:
        return False


def _name(uid: int) -> str:
    import pwd  # start-up cost, for this error only

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
