"""Which folders may be a workspace, and where its store is."""

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
from holdfast.errors import NotFound, Refused, Remedy, Unavailable
from holdfast.escaping import shell_word
from holdfast.shadowgit.refs import CONFIG
from holdfast.validation import check_place
from holdfast.workspace.store_trust import is_own

FORMAT = 1
_THIS = "a Holdfast store of format {}"  # repeats the format: one flipped bit must not look like another version
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
_IN_MEMORY = "/dev/shm"  # allowed, although it is a system folder: people work below it
_CHOSEN = r".+-[0-9a-f]{24}"  # the name of a store in the default place
_PERSONAL = ("Desktop", "Documents", "Downloads", "Library", ".config", ".local", ".ssh")


def home_folder() -> Path:
    """Return the user's home folder. Unavailable if it is unknown, as for a user without a passwd entry."""
    try:
        return Path.home()
    except RuntimeError:
        raise Unavailable("your home folder is unknown", hint="Set HOME to a folder that is yours.") from None


def real_workspace(
    path: str | os.PathLike[str],
    *,
    home: Path,
    allow_home: bool,
    store: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    missing_ok: bool = False,
) -> Path:
    """Return the real path of a workspace, with links resolved. Refused for folders that are not projects.

    NotFound if it does not exist; if `store` or `environ` lead to its checkpoints, the hint says how to restore them.
    With `missing_ok` it need not exist if they do.
    """
    real = Path(os.path.realpath(check_place(path, "the workspace")))
    has_checkpoints = not os.path.lexists(real) and _has_store(real, store, environ)
    if not real.is_dir() and not (missing_ok and has_checkpoints):
        what = "is not a folder" if real.exists() else "does not exist"
        if has_checkpoints:
            path = shell_word(os.fspath(real))
            raise NotFound(f"{real} {what}, but has checkpoints", remedy=Remedy("restore_missing", path=path))
        raise NotFound(f"{real} {what}", hint="Choose an existing project folder.")
    home = Path(os.path.realpath(home))
    is_system = str(real) in {os.path.realpath(place) for place in _SYSTEM} or any(
        real.is_relative_to(tree) and not real.parent.is_relative_to(_IN_MEMORY) for tree in _SYSTEM_TREES
    )
    if is_system and real != home:
        raise Refused(f"{real} is a system folder", hint="Choose the project folder.")
    if home.is_relative_to(real) or str(real) in [os.path.realpath(home / name) for name in _PERSONAL]:
        what = "is your home folder" if real == home else "contains your home folder or personal files"
        if not allow_home or (home.is_relative_to(real) and real != home):
            raise Refused(
                f"{real} {what}",
                hint="Choose the project folder.",
                remedy=Remedy("allow_home"),
            )
    return real


def store_folder(workspace: Path, *, store: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> Path:
    """Return the folder of a workspace's store. Refused if one of the two is inside the other."""
    if store is not None:
        folder = Path(os.path.realpath(check_place(store, "the store")))
    else:
        folder = Path(os.path.realpath(_chosen(stores_root(environ), workspace, environ=environ)))
    if folder.is_relative_to(workspace) or workspace.is_relative_to(folder):
        raise Refused(
            f"the store {folder} and the workspace {workspace} are inside one another",
            hint="Choose a store outside the workspace, or set HOLDFAST_STORE_ROOT.",
            remedy=Remedy("other_store"),
        )
    return folder


def project_root(here: Path, *, home: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the nearest folder from here up, below the home folder, that has checkpoints or is a git repository."""
    home = Path(os.path.realpath(home))
    for folder in (here, *here.parents):
        if folder != here and folder in (home, Path(folder.anchor)):
            break
        try:
            if (store_folder(folder, store=None, environ=environ) / "HEAD").exists():
                return folder
        except Refused:
            continue
        if (folder / ".git").exists():
            return folder
    return None


def _has_store(gone: Path, store: str | os.PathLike[str] | None, environ: Mapping[str, str] | None) -> bool:
    """Whether a folder that does not exist has checkpoints."""
    if environ is None:
        return False
    with contextlib.suppress(OSError, Refused):
        return owner_of(store_folder(gone, store=store, environ=environ), environ) == os.fspath(gone)
    return False


def check_room(folder: Path) -> None:
    """Refuse a store folder with other files in it; make an empty one private first (P7)."""
    if not folder.is_dir() or (folder / "holdfast").is_dir():
        return  # new, or its creation was interrupted
    if any(folder.iterdir()):
        raise Refused(
            f"{folder} is not empty, and is not a store", hint="Choose an empty or a new folder for the store."
        )
    folder.chmod(0o700)


def check_is_store(folder: Path) -> None:
    """Refuse a git repository that is not a store (P6)."""
    config = folder / "config"
    if not (folder / "holdfast").is_dir() and config.is_file() and config.read_bytes() != CONFIG:
        raise Refused(f"{folder} is a git repository, not a store", hint="Choose an empty or a new folder.")


def check_owner(folder: Path, workspace: Path) -> None:
    """Refuse a store of a newer Holdfast or of another workspace."""
    try:
        said = read_owner((folder / "holdfast" / "store.json").read_bytes())
    except FileNotFoundError:
        return
    if said is None:
        return  # damaged: `verify` reports it; the checkpoints do not depend on it
    version, owner = said
    if version > FORMAT:
        raise Refused(f"{folder} was written by a newer Holdfast", hint="Upgrade Holdfast to use this store.")
    if owner != os.fspath(workspace) and os.path.isdir(owner) and not os.path.samefile(owner, workspace):
        raise Refused(
            f"{folder} contains the checkpoints of {owner}, not of {workspace}",
            hint="Open that folder, or use another store.",
            remedy=Remedy("other_store"),
        )


def write_owner(folder: Path, workspace: Path, environ: Mapping[str, str]) -> None:
    """Write the workspace of a store; a moved workspace keeps its store, and finds it by itself from then on.

    Needs the store's lock. Reading does not do this: the recorded workspace may be on a disk that is not mounted now.
    """
    path = folder / "holdfast" / "store.json"
    about = {"this": _THIS.format(FORMAT), "format": FORMAT, "workspace": os.fspath(workspace)}
    text = json.dumps(about, indent=1) + "\n"
    try:
        found = path.read_bytes()
        said = read_owner(found)
        if found == text.encode() or said is None:
            return  # damaged: `verify` reports it
        _lead_to(folder, workspace, Path(said[1]), environ)
    except FileNotFoundError:
        pass
    durable.write_atomically(path, text.encode())


def _lead_to(store: Path, workspace: Path, before: Path, environ: Mapping[str, str]) -> None:
    """Link a store to the default place of its workspace, and remove the link of the earlier place."""
    here = _chosen(store.parent, workspace, before, environ=environ)
    there = _chosen(store.parent, before, environ=environ)
    with contextlib.suppress(OSError):  # without it, only callers that pass the store find it
        if there.is_symlink() and there.samefile(store):
            there.unlink()
        if re.fullmatch(_CHOSEN, store.name):
            here.symlink_to(store.name)


def owner_of(folder: Path, environ: Mapping[str, str]) -> str | None:
    """Return the workspace that a store records; None if there is none, or if the store is not the user's own (P7)."""
    try:
        said = read_owner((folder / "holdfast" / "store.json").read_bytes()) if is_own(folder, environ) else None
    except OSError:
        return None
    return said and said[1]


def read_owner(data: bytes) -> tuple[int, str] | None:
    """Parse `store.json`: the format and the workspace of a store; None if it is damaged."""
    try:
        said = durable.parse_json(data)
        version, owner = int(said["format"]), str(said["workspace"])
        return (version, owner) if said.get("this", _THIS.format(version)) == _THIS.format(version) else None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def left_behind(workspace: Path, environ: Mapping[str, str], *, likely: bool = False) -> dict[str, Path]:
    """Return stores of deleted folders, or of this one before it was moved, by folder; the likeliest first.

    likely: of the deleted ones, only folders with the same name, or that were at this path once.
    """
    own: dict[str, Path] = {}
    namesakes: dict[str, Path] = {}
    others: dict[str, Path] = {}
    root = stores_root(environ)
    chosen, first = _chosen(root, workspace, environ=environ).name, _store_name(workspace, 0)
    for path in sorted(root.glob("*/holdfast")):
        store, owner = path.parent, owner_of(path.parent, environ)
        if owner is None or store.name == chosen or store.is_symlink():
            continue  # its own, half created; or one that is also listed under its own name
        if os.path.realpath(owner) == os.fspath(workspace):  # also through a link
            own[owner] = store
        elif not os.path.lexists(owner):
            is_likely = os.path.basename(owner) == workspace.name or store.name == first
            (namesakes if is_likely else others)[owner] = store
    return own | namesakes | ({} if likely else others)


def _chosen(root: Path, workspace: Path, *owners: Path, environ: Mapping[str, str]) -> Path:
    """Return where a workspace looks for its store: the first of its names that is not the store of another folder
    (one that was at this path once and was moved), except for those of `owners`."""
    ours = {None, *map(os.fspath, (workspace, *owners))}
    places = (root / _store_name(workspace, number) for number in count())
    return next(place for place in places if owner_of(place, environ) in ours)


def _store_name(workspace: Path, number: int) -> str:
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", workspace.name)[:40].strip("-.") or "workspace"
    further = b"\0%d" % number if number else b""
    return f"{label}-{_sha256(os.fsencode(workspace) + further)[:24]}"


def _sha256(data: bytes) -> str:
    """Return the hex digest. Uses the built-in module instead of `hashlib`: loading OpenSSL takes longer (start-up)."""
    try:
        if sys.version_info >= (3, 12):
            from _sha2 import sha256
        else:
            from _sha256 import sha256  # type: ignore[import-not-found]  # typeshed has no stub
    except ImportError:  # a Python built without it
        from hashlib import sha256
    return str(sha256(data).hexdigest())


def stores_root(environ: Mapping[str, str]) -> Path:
    """Return the folder of all stores in the default place."""
    if chosen := environ.get("HOLDFAST_STORE_ROOT"):
        return Path(os.path.expanduser(chosen))
    state = environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):  # the XDG standard says to ignore a relative one
        return Path(state) / "holdfast" / "workspaces"
    home = os.environ.get("HOME", "")
    is_plain = sys.platform == "linux" and os.path.isabs(home)
    if is_plain and not {"XDG_STATE_HOME", "ANDROID_DATA"} & os.environ.keys():
        return Path(home) / ".local" / "state" / "holdfast" / "workspaces"  # as `platformdirs`, without loading it
    from platformdirs import user_state_path  # start-up cost: only where the place is not the plain one of Linux

    return user_state_path("holdfast") / "workspaces"
