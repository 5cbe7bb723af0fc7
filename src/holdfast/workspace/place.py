"""Where a workspace may be, and where its store is."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from holdfast import durable
from holdfast.errors import NotFound, Refused, Unavailable
from holdfast.shadowgit.refs import CONFIG
from holdfast.workspace.given import a_path
from holdfast.workspace.trust import is_own

FORMAT = 1
_THIS = "a Holdfast store of format {}"  # says the format once more: one flipped bit must not look like another
_SYSTEM = frozenset(
    [
        "/",
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/home",
        "/lib",
        "/lib64",
        "/media",
        "/mnt",
        "/opt",
        "/proc",
        "/root",
        "/run",
        "/sbin",
        "/srv",
        "/sys",
        "/tmp",
        "/usr",
        "/usr/bin",
        "/usr/lib",
        "/usr/lib64",
        "/usr/sbin",
        "/usr/share",
        "/usr/local",
        "/var",
        "/var/lib",
        "/var/tmp",
    ]
)
_SYSTEM_TREES = ("/proc", "/sys", "/dev", "/boot")
_IN_MEMORY = "/dev/shm"  # people work below it
_CHOSEN = r".+-[0-9a-f]{24}"  # a name that we gave a store
_PERSONAL = ("Desktop", "Documents", "Downloads", "Library", ".config", ".local", ".ssh")


def home_folder() -> Path:
    """The user's home folder. Unavailable where nothing says which it is, as in a container for a mere number."""
    try:
        return Path.home()
    except RuntimeError:
        raise Unavailable(
            "it cannot be told which folder is your home", hint="Set HOME to a folder that is yours."
        ) from None


def real_workspace(
    path: str | os.PathLike[str],
    *,
    home: Path,
    allow_home: bool,
    store: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Path:
    """The real path of a workspace, whichever link or spelling led there. Refused for places that are not projects.

    NotFound for one that is not there; where `store` or `environ` lead to its checkpoints, with how they come back.
    """
    real = Path(os.path.realpath(a_path(path, "the workspace")))
    if not real.is_dir():
        what = "is not a folder" if real.exists() else "does not exist"
        raise NotFound(f"{real} {what}", hint=_way_back(real, store, environ) or "Name an existing project folder.")
    home = Path(os.path.realpath(home))
    is_system = str(real) in {os.path.realpath(place) for place in _SYSTEM} or any(
        real.is_relative_to(tree) and not real.parent.is_relative_to(_IN_MEMORY) for tree in _SYSTEM_TREES
    )
    if is_system and real != home:
        raise Refused(f"{real} is a place of the system", hint="Name the project folder.")
    if home.is_relative_to(real) or str(real) in [os.path.realpath(home / name) for name in _PERSONAL]:
        what = "is your home folder" if real == home else "holds your home folder or personal files"
        if not allow_home or (home.is_relative_to(real) and real != home):
            raise Refused(
                f"{real} {what}",
                hint="Name the project folder, or say that you mean it: --allow-home (allow_home=True).",
            )
    return real


def store_folder(workspace: Path, *, store: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> Path:
    """The folder of a workspace's store. Refused inside the workspace, and where the workspace is inside the store."""
    if store is not None:
        folder = Path(os.path.realpath(a_path(store, "the store")))
    else:
        folder = Path(os.path.realpath(_chosen(_stores_root(environ), workspace, environ=environ)))
    if folder.is_relative_to(workspace) or workspace.is_relative_to(folder):
        raise Refused(
            f"the store {folder} and the workspace {workspace} are inside one another",
            hint="Choose a store outside the workspace: --store (store=…), or HOLDFAST_STORE_ROOT.",
        )
    return folder


def _way_back(gone: Path, store: str | os.PathLike[str] | None, environ: Mapping[str, str] | None) -> str:
    """How a folder that was removed is brought back, if it has a store; empty if it has none."""
    if environ is None or os.path.lexists(gone) or not gone.parent.is_dir():
        return ""
    from shlex import quote  # start-up cost, for who is in trouble

    with contextlib.suppress(OSError, Refused):
        folder = store_folder(gone, store=store, environ=environ)
        if owner_of(folder, environ) == os.fspath(gone):
            return (
                f"Its checkpoints are in {folder}: make the folder again (mkdir {quote(str(gone))}), and restore one."
            )
    return ""


def check_room(folder: Path) -> None:
    """Refused where a store would be made among somebody's files; an empty folder is closed to others first."""
    if not folder.is_dir() or (folder / "holdfast").is_dir():
        return  # it is new, or making it was interrupted
    if any(folder.iterdir()):
        raise Refused(f"{folder} is not empty, and is not a store", hint="Name an empty or a new folder for the store.")
    folder.chmod(0o700)


def check_is_store(folder: Path) -> None:
    """Refused for a git repository that is somebody's own."""
    config = folder / "config"
    if not (folder / "holdfast").is_dir() and config.is_file() and config.read_bytes() != CONFIG:
        raise Refused(f"{folder} is a git repository, not a store", hint="Name an empty or a new folder.")


def check_owner(folder: Path, workspace: Path) -> None:
    """Refused if a store was made by a newer Holdfast or belongs to another workspace."""
    try:
        said = read_owner((folder / "holdfast" / "store.json").read_bytes())
    except FileNotFoundError:
        return
    if said is None:
        return  # damaged: `verify` names it, and the checkpoints do not depend on it
    version, owner = said
    if version > FORMAT:
        raise Refused(f"{folder} was written by a newer Holdfast", hint="Upgrade Holdfast to use this store.")
    if owner != os.fspath(workspace) and os.path.isdir(owner) and not os.path.samefile(owner, workspace):
        raise Refused(
            f"{folder} holds the checkpoints of {owner}, not of {workspace}",
            hint="Open that folder, or name another store: --store PATH (store=…).",
        )


def write_owner(folder: Path, workspace: Path, environ: Mapping[str, str]) -> None:
    """Say whose store this is; a workspace that was moved takes its store along, and finds it by itself from then on.

    Needs the store's lock. Who only looks does not: the folder that it is of may be on a disk that is not there now.
    """
    path = folder / "holdfast" / "store.json"
    about = {"this": _THIS.format(FORMAT), "format": FORMAT, "workspace": os.fspath(workspace)}
    text = json.dumps(about, indent=1) + "\n"
    try:
        found = path.read_bytes()
        said = read_owner(found)
        if found == text.encode() or said is None:
            return  # a damaged one is left for `verify` to name
        _lead_to(folder, workspace, Path(said[1]), environ)
    except FileNotFoundError:
        pass
    durable.write_atomically(path, text.encode())


def _lead_to(store: Path, workspace: Path, before: Path, environ: Mapping[str, str]) -> None:
    """Put a link to a store where a workspace looks for its own, if we chose that place; and none where it was."""
    here = _chosen(store.parent, workspace, before, environ=environ)
    there = _chosen(store.parent, before, environ=environ)
    with contextlib.suppress(OSError):  # without it the store is found by `--store`, as before
        if there.is_symlink() and there.samefile(store):
            there.unlink()
        if re.fullmatch(_CHOSEN, store.name):
            here.symlink_to(store.name)


def owner_of(folder: Path, environ: Mapping[str, str]) -> str | None:
    """The workspace that a store says it is of; None if it does not, or is not the user's own (P7)."""
    try:
        said = read_owner((folder / "holdfast" / "store.json").read_bytes()) if is_own(folder, environ) else None
    except OSError:
        return None
    return said and said[1]


def read_owner(data: bytes) -> tuple[int, str] | None:
    """The format of a store and whose it is, from its `store.json`; None if that is not as it was written."""
    try:
        said = json.loads(data)
        version, owner = int(said["format"]), str(said["workspace"])
        return (version, owner) if said.get("this", _THIS.format(version)) == _THIS.format(version) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def left_behind(workspace: Path, environ: Mapping[str, str], *, likely: bool = False) -> dict[str, Path]:
    """Stores of folders that are gone, or of this one from before it came here, by folder; the likeliest first.

    likely: of those that are gone, only folders with its name, or that were at its place once.
    """
    own: dict[str, Path] = {}
    namesakes: dict[str, Path] = {}
    others: dict[str, Path] = {}
    root = _stores_root(environ)
    chosen, first = _chosen(root, workspace, environ=environ).name, _store_name(workspace, 0)
    for path in sorted(root.glob("*/holdfast")):
        store, owner = path.parent, owner_of(path.parent, environ)
        if owner is None or store.name == chosen or store.is_symlink():
            continue  # its own, half made; or one that comes by its own name as well
        if os.path.realpath(owner) == os.fspath(workspace):  # also by a link that it left behind
            own[owner] = store
        elif not os.path.lexists(owner):
            is_likely = os.path.basename(owner) == workspace.name or store.name == first
            (namesakes if is_likely else others)[owner] = store
    return own | namesakes | ({} if likely else others)


def _chosen(root: Path, workspace: Path, *owners: Path, environ: Mapping[str, str]) -> Path:
    """Where a workspace looks for its store: at the first of its names where there is none of another folder, which
    was here once and took it along, wherever it is now; but for those of `owners`."""
    ours = {None, *map(os.fspath, (workspace, *owners))}
    places = (root / _store_name(workspace, number) for number in count())
    return next(place for place in places if owner_of(place, environ) in ours)


def _store_name(workspace: Path, number: int) -> str:
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", workspace.name)[:40].strip("-.") or "workspace"
    further = b"\0%d" % number if number else b""
    return f"{label}-{_sha256(os.fsencode(workspace) + further)[:24]}"


def _sha256(data: bytes) -> str:
    """In hex. By the module that `hashlib` has beside OpenSSL, where it is: loading that takes longer than this."""
    try:
        if sys.version_info >= (3, 12):
            from _sha2 import sha256
        else:
            from _sha256 import sha256  # type: ignore[import-not-found]  # typeshed has no stub
    except ImportError:  # a Python that was built without it
        from hashlib import sha256
    return str(sha256(data).hexdigest())


def _stores_root(environ: Mapping[str, str]) -> Path:
    if chosen := environ.get("HOLDFAST_STORE_ROOT"):
        return Path(chosen)
    state = environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):  # a relative one is to be passed over, says the standard
        return Path(state) / "holdfast" / "workspaces"
    from platformdirs import user_state_path  # costs more to import than a save with nothing changed

    return user_state_path("holdfast") / "workspaces"
