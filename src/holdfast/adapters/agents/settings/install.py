"""Installing and uninstalling: a plan shows what would change, and is then carried out in one step, with a backup.

What a file was before is kept with a receipt. A file that nobody touched since gets exactly those bytes back when our
entries are taken out; any other loses our entries and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from holdfast import durable
from holdfast.adapters.agents.agent import Agent, Places, Scope
from holdfast.adapters.agents.folders import own_folder
from holdfast.adapters.agents.settings.jsonc import NotJSON
from holdfast.adapters.agents.settings.ours import with_entries, without_entries
from holdfast.adapters.agents.settings.ownership import give, give_ours, make_ours, owner_at
from holdfast.adapters.agents.settings.reading import decode, read_bytes
from holdfast.errors import Conflict, Refused


@dataclass(frozen=True, slots=True)
class Change:
    """What would become of one settings file. None stands for no file."""

    agent: str
    path: Path
    """The file itself, at the end of all links."""
    before: bytes | None
    after: bytes | None
    backup: Path
    """Where what was there before is kept."""
    removes: bool = False
    """It takes our entries out: what is known of the file goes with them."""

    def __bool__(self) -> bool:
        return self.before != self.after


def plan_install(agent: Agent, scope: Scope, places: Places, words: Sequence[str]) -> Change:
    """Say what installing would change. Refused if the file cannot be understood."""
    path = _real(agent.settings(places, scope))
    before = read_bytes(path)
    if agent.own_file is not None:
        text = agent.own_file(words)
        if before is not None and before != text.encode() and not _is_own_file(before, text):
            raise Refused(f"{path} is not a file of ours", hint="Move it away, and install again.")
        return _change(agent, path, before, text.encode(), places)
    receipt = _Receipt.read(path, places.environ)
    base = receipt.original(before, path, places.environ) if receipt else before
    text = decode(path, base)
    try:
        after = with_entries(text, agent, agent.entries(words))
    except NotJSON as error:
        raise _refused(path, error) from None
    return _change(agent, path, before, _encoded(after, base), places)


def plan_uninstall(agent: Agent, scope: Scope, places: Places) -> Change:
    """Say what uninstalling would change."""
    path = _real(agent.settings(places, scope))
    before = read_bytes(path)
    receipt = _Receipt.read(path, places.environ)
    base = receipt.original(before, path, places.environ) if receipt else before
    if base is None:
        return _change(agent, path, before, None, places, removes=True)
    if agent.own_file is not None:
        ours = _is_own_file(base, agent.own_file(["holdfast"]))
        return _change(agent, path, before, None if ours else base, places, removes=True)
    try:
        after = without_entries(decode(path, base), agent.name)  # it may have had some before this receipt
    except NotJSON as error:
        raise _refused(path, error) from None
    left = _encoded(after, base)
    is_empty = receipt is not None and not receipt.existed and _is_only(after, agent.frame)
    return _change(agent, path, before, None if is_empty else left, places, removes=True)


def carry_out(change: Change, environ: Mapping[str, str]) -> None:
    """Make a change. Conflict if the file is no longer as it was planned for; then nothing is changed."""
    if not change:
        return
    make_ours(change.backup.parent)
    with durable.Lock(change.backup.parent / "lock"):  # P9: two of us would share the file that is renamed into place
        _carry_out(change, environ)
    give_ours(environ)


def _carry_out(change: Change, environ: Mapping[str, str]) -> None:
    if read_bytes(change.path) != change.before:
        raise Conflict(f"{change.path} was changed by somebody else meanwhile", hint="Try again.")
    made = [folder for folder in change.path.parents if not folder.exists()]
    receipt = _Receipt.read(change.path, environ)
    if change.before is not None:
        durable.write_atomically(change.backup, change.before)  # P1: what is replaced is kept first
    if change.after is not None and not change.removes:
        original = receipt if receipt and receipt.after == _digest(change.before or b"") else None
        new = original or _Receipt(change.before is not None, change.backup.name, "", [str(each) for each in made])
        new.write(change.path, environ, after=_digest(change.after))
    owner = owner_at(change.path)  # under sudo it is not ours
    for folder in reversed(made):
        durable.disk().mkdir(str(folder), mode=0o755)
        give(folder, owner)
    if read_bytes(change.path) != change.before:
        raise Conflict(f"{change.path} was changed by somebody else meanwhile", hint="Try again.")
    if change.after is None:
        durable.disk().unlink(str(change.path))
        _Receipt.forget(change.path, environ)
        for name in receipt.made if receipt else []:
            with contextlib.suppress(OSError):  # somebody has put something there
                durable.disk().rmdir(name)
        return
    mode = os.stat(change.path).st_mode & 0o777 if change.before is not None else 0o644
    temporary = change.path.with_name(f".{change.path.name}.holdfast-new")
    durable.write_atomically(change.path, change.after, via=temporary, mode=mode, owner=owner)
    if change.removes:
        _Receipt.forget(change.path, environ)


@dataclass(frozen=True, slots=True)
class _Receipt:
    """What a file was before we came, and what we made of it."""

    existed: bool
    backup: str
    after: str
    made: list[str]

    @staticmethod
    def read(path: Path, environ: Mapping[str, str]) -> _Receipt | None:
        try:
            said = json.loads((_kept(path, environ) / "receipt.json").read_bytes())
            return _Receipt(bool(said["existed"]), str(said["backup"]), str(said["after"]), list(said["made"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, path: Path, environ: Mapping[str, str], *, after: str) -> None:
        about = {"path": str(path), "existed": self.existed, "backup": self.backup, "after": after, "made": self.made}
        folder = _kept(path, environ)
        make_ours(folder)
        durable.write_atomically(folder / "receipt.json", json.dumps(about, indent=1).encode() + b"\n")

    @staticmethod
    def forget(path: Path, environ: Mapping[str, str]) -> None:
        """Know nothing of a file any more: what is written there from now on is not what we made."""
        with contextlib.suppress(FileNotFoundError):
            durable.disk().unlink(str(_kept(path, environ) / "receipt.json"))

    def original(self, now: bytes | None, path: Path, environ: Mapping[str, str]) -> bytes | None:
        """What was there before us, if what is there now is what we made; else what is there now."""
        if now is None or _digest(now) != self.after:
            return now
        if not self.existed:
            return None
        try:
            found = (_kept(path, environ) / self.backup).read_bytes()
        except OSError:
            return now
        return found if self.backup == _backup_name(found) else now


def _change(
    agent: Agent, path: Path, before: bytes | None, after: bytes | None, places: Places, *, removes: bool = False
) -> Change:
    backup = _kept(path, places.environ) / _backup_name(before or b"")
    return Change(agent.name, path, before, after, backup, removes)


def _kept(path: Path, environ: Mapping[str, str]) -> Path:
    return Path(own_folder(environ)) / "settings" / sha256(os.fsencode(path)).hexdigest()[:16]


def _backup_name(data: bytes) -> str:
    return f"before-{_digest(data)[:16]}"


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def _real(path: Path) -> Path:
    """Where a file really is: a link to it stays a link."""
    return Path(os.path.realpath(path))


def _encoded(text: str, before: bytes | None) -> bytes:
    return (b"\xef\xbb\xbf" if (before or b"").startswith(b"\xef\xbb\xbf") else b"") + text.encode()


def _refused(path: Path, error: NotJSON) -> Refused:
    return Refused(f"{path} cannot be read: {error}", hint="Nothing was changed. Fix it, and try again.")


def _is_own_file(before: bytes, text: str) -> bool:
    return before.partition(b"\n")[0] == text.encode().partition(b"\n")[0]


def _is_only(text: str, frame: Mapping[str, object]) -> bool:
    try:
        return json.loads(text) in ({}, dict(frame), {**frame, "hooks": {}})
    except ValueError:
        return False
