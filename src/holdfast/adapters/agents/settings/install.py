"""Installing and uninstalling hooks: a plan shows the change, which is then applied in one step, with a backup.

A receipt records the previous content. Uninstalling restores exactly those bytes if the file was not edited since;
otherwise it removes the entries of Holdfast and nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

from holdfast import durable
from holdfast.adapters.agents.base import Agent, SettingsPaths, SettingsScope
from holdfast.adapters.agents.protocol import state_folder
from holdfast.adapters.agents.settings.hook_entries import with_entries, without_entries
from holdfast.adapters.agents.settings.jsonc import NotJSON
from holdfast.adapters.agents.settings.ownership import give, give_ours, make_ours, owner_at
from holdfast.adapters.agents.slash_commands import TOKEN
from holdfast.errors import Conflict, Refused

_MAX_BYTES = 8 << 20
_TOKEN = re.compile(rb"HOLDFAST_([0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """A change of one settings file. None stands for no file."""

    agent: str
    path: Path
    """The file itself, at the end of all links."""
    before: bytes | None
    after: bytes | None
    backup: Path
    """Where the previous content is saved."""
    removes: bool = False
    """It removes the entries: the receipt is removed with them."""
    is_command: bool = False
    """The file defines a slash command."""
    is_kept: bool = False
    """The file was edited, or is not Holdfast's, and stays."""
    is_unfinished: bool = False
    """An earlier removal was interrupted: folders that were made for the file may be left."""
    mode: int = 0o644
    """Of a new file."""

    def __bool__(self) -> bool:
        return self.before != self.after or self.is_unfinished


def plan_install(agent: Agent, scope: SettingsScope, places: SettingsPaths, words: Sequence[str]) -> SettingsChange:
    """Plan an installation. Refused if the file cannot be parsed."""
    path = _real(agent.settings(places, scope))
    before = read_settings_file(path)
    if agent.own_file is not None:
        text = agent.own_file(words)
        if before is not None and before != text.encode() and not _is_own_file(before, text):
            raise Refused(f"{path} was not written by Holdfast", hint="Move it away, and install again.")
        return _change(agent, path, before, text.encode(), places)
    receipt = _Receipt.read(path, places.environ)
    base = receipt.original(before, path, places.environ) if receipt else before
    text = decode_settings(path, base)
    try:
        after = with_entries(text, agent, agent.entries(words))
    except NotJSON as error:
        raise _refused(path, error) from None
    return _change(agent, path, before, _encoded(after, base), places)


def plan_write_file(name: str, path: Path, after: bytes, places: SettingsPaths) -> SettingsChange:
    """Plan to write a file that is Holdfast's alone."""
    path = _real(path)
    before = read_settings_file(path)
    return SettingsChange(name, path, before, after, _backup(path, before, places))


def plan_remove_file(name: str, path: Path, places: SettingsPaths) -> SettingsChange:
    """Plan to remove a file that `plan_write_file` wrote. If it was edited since, it stays (P1)."""
    path = _real(path)
    before = read_settings_file(path)
    receipt = _Receipt.read(path, places.environ)
    after = None if receipt is not None and receipt.is_as_written(before) else before
    is_unfinished = before is None and receipt is not None
    return SettingsChange(
        name, path, before, after, _backup(path, before, places), removes=True, is_unfinished=is_unfinished
    )


def plan_install_commands(
    agent: Agent, scope: SettingsScope, places: SettingsPaths, words: Sequence[str]
) -> list[SettingsChange]:
    """Plan to write the slash commands of an agent. A file that was edited, or is not Holdfast's, stays (P1)."""
    files = agent.commands(places, scope, words) if agent.commands else {}
    return [_plan_command(agent, path, text, places) for path, text in files.items()]


def plan_uninstall_commands(
    agent: Agent, scope: SettingsScope, places: SettingsPaths, words: Sequence[str]
) -> list[SettingsChange]:
    """Plan to remove the slash commands of an agent, those written last first, so that their folders become empty."""
    files = agent.commands(places, scope, words) if agent.commands else {}
    planned = [plan_remove_file(agent.name, path, places) for path in reversed(list(files))]
    return [replace(each, is_command=True, is_kept=each.before is not None and not each) for each in planned]


def plan_install_plugin(
    agent: Agent, scope: SettingsScope, places: SettingsPaths, words: Sequence[str], program: Sequence[str]
) -> list[SettingsChange]:
    """Plan to write the plugin of an agent. A file that was edited, or is not Holdfast's, stays (P1)."""
    if agent.plugin is None:
        raise Refused(f"{agent.title} has no plugins of this kind", hint="Install its hooks in its settings.")
    files = agent.plugin(places, scope, words, program)
    return [_plan_command(agent, path, text, places) for path, text in files.items()]


def plan_uninstall_plugin(
    agent: Agent, scope: SettingsScope, places: SettingsPaths, words: Sequence[str], program: Sequence[str]
) -> list[SettingsChange]:
    """Plan to remove the plugin of an agent, the hooks first; nothing if it is not there."""
    files = agent.plugin(places, scope, words, program) if agent.plugin else {}
    planned = [plan_remove_file(agent.name, path, places) for path in reversed(list(files))]
    kept = [replace(each, is_command=True, is_kept=each.before is not None and not each) for each in planned]
    return [each for each in kept if each or each.is_kept]


def _plan_command(agent: Agent, path: Path, text: str, places: SettingsPaths) -> SettingsChange:
    path = _real(path)
    before = read_settings_file(path)
    found = _TOKEN.search(before or b"")  # stays the same, so that installing again changes nothing
    after = text.replace(TOKEN, found[1].decode() if found else token_hex(16)).encode()
    receipt = _Receipt.read(path, places.environ)
    is_kept = before is not None and before != after and not (receipt and receipt.is_as_written(before))
    return SettingsChange(
        agent.name,
        path,
        before,
        before if is_kept else after,
        _backup(path, before, places),
        is_command=True,
        is_kept=is_kept,
        mode=0o755 if text.startswith("#!") else 0o644,
    )


def plan_uninstall(agent: Agent, scope: SettingsScope, places: SettingsPaths) -> SettingsChange:
    """Plan an uninstallation."""
    path = _real(agent.settings(places, scope))
    before = read_settings_file(path)
    receipt = _Receipt.read(path, places.environ)
    base = receipt.original(before, path, places.environ) if receipt else before
    if base is None:
        change = _change(agent, path, before, None, places, removes=True)
        return replace(change, is_unfinished=before is None and receipt is not None)
    if agent.own_file is not None:
        ours = _is_own_file(base, agent.own_file(["holdfast"]))
        return _change(agent, path, before, None if ours else base, places, removes=True)
    try:
        after = without_entries(decode_settings(path, base), agent.name)  # it may have had entries before this receipt
    except NotJSON as error:
        raise _refused(path, error) from None
    left = _encoded(after, base)
    is_empty = receipt is not None and not receipt.existed and _is_only(after, agent.frame)
    return _change(agent, path, before, None if is_empty else left, places, removes=True)


def apply_change(change: SettingsChange, environ: Mapping[str, str]) -> None:
    """Apply a change. Conflict, with nothing changed, if the file has changed since the plan."""
    if not change:
        return
    make_ours(change.backup.parent)
    with durable.Lock(change.backup.parent / "lock"):  # P9: two processes would share the temporary file
        _carry_out(change, environ)
    give_ours(environ)


def _carry_out(change: SettingsChange, environ: Mapping[str, str]) -> None:
    if read_settings_file(change.path) != change.before:
        raise Conflict(f"{change.path} was changed by another program meanwhile", hint="Try again.")
    made = [folder for folder in change.path.parents if not folder.exists()]
    receipt = _Receipt.read(change.path, environ)
    if change.before is not None:
        durable.write_atomically(change.backup, change.before)  # P1: back up what is replaced
    if change.after is not None and not change.removes:
        original = receipt if receipt and receipt.after == _digest(change.before or b"") else None
        folders = [str(each) for each in made]
        if receipt and change.before is None:  # an interrupted installation made some already
            folders += [each for each in receipt.made if each not in folders]
        new = original or _Receipt(change.before is not None, change.backup.name, "", folders)
        new.write(change.path, environ, after=_digest(change.after))
    owner = owner_at(change.path)  # under sudo, not this user
    for folder in reversed(made) if change.after is not None else ():
        durable.disk().mkdir(str(folder), mode=0o755)
        give(folder, owner)
    if read_settings_file(change.path) != change.before:
        raise Conflict(f"{change.path} was changed by another program meanwhile", hint="Try again.")
    temporary = change.path.with_name(f".{change.path.name}.holdfast-new")
    if change.after is None:
        if change.before is not None:
            durable.disk().unlink(str(change.path))
        with contextlib.suppress(FileNotFoundError):  # of an installation that was interrupted
            durable.disk().unlink(str(temporary))
        for name in receipt.made if receipt else []:
            with contextlib.suppress(OSError):  # it is not empty
                durable.disk().rmdir(name)
        _Receipt.forget(change.path, environ)  # last: after a kill, the next call removes the folders
        return
    mode = os.stat(change.path).st_mode & 0o777 if change.before is not None else change.mode
    durable.write_atomically(change.path, change.after, via=temporary, mode=mode, owner=owner)
    if change.removes:
        _Receipt.forget(change.path, environ)


@dataclass(frozen=True, slots=True)
class _Receipt:
    """What a file was before the installation, and after it."""

    existed: bool
    backup: str
    after: str
    made: list[str]

    @staticmethod
    def read(path: Path, environ: Mapping[str, str]) -> _Receipt | None:
        try:
            stored = durable.parse_json((_backup_folder(path, environ) / "receipt.json").read_bytes())
            return _Receipt(bool(stored["existed"]), str(stored["backup"]), str(stored["after"]), list(stored["made"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, path: Path, environ: Mapping[str, str], *, after: str) -> None:
        about = {"path": str(path), "existed": self.existed, "backup": self.backup, "after": after, "made": self.made}
        folder = _backup_folder(path, environ)
        make_ours(folder)
        durable.write_atomically(folder / "receipt.json", json.dumps(about, indent=1).encode() + b"\n")

    def is_as_written(self, now: bytes | None) -> bool:
        """Whether a file has the content that the installation gave it."""
        return now is not None and _digest(now) == self.after

    @staticmethod
    def forget(path: Path, environ: Mapping[str, str]) -> None:
        """Remove the receipt: from now on the file's content is not from Holdfast."""
        with contextlib.suppress(FileNotFoundError):
            durable.disk().unlink(str(_backup_folder(path, environ) / "receipt.json"))

    def original(self, now: bytes | None, path: Path, environ: Mapping[str, str]) -> bytes | None:
        """The content before the installation, if the file was not edited since; else the current content."""
        if now is None or _digest(now) != self.after:
            return now
        if not self.existed:
            return None
        try:
            found = (_backup_folder(path, environ) / self.backup).read_bytes()
        except OSError:
            return now
        return found if self.backup == _backup_name(found) else now


def _change(
    agent: Agent, path: Path, before: bytes | None, after: bytes | None, places: SettingsPaths, *, removes: bool = False
) -> SettingsChange:
    return SettingsChange(agent.name, path, before, after, _backup(path, before, places), removes)


def _backup(path: Path, before: bytes | None, places: SettingsPaths) -> Path:
    return _backup_folder(path, places.environ) / _backup_name(before or b"")


def _backup_folder(path: Path, environ: Mapping[str, str]) -> Path:
    return Path(state_folder(environ)) / "settings" / sha256(os.fsencode(path)).hexdigest()[:16]


def _backup_name(data: bytes) -> str:
    return f"before-{_digest(data)[:16]}"


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def _real(path: Path) -> Path:
    """The real path of a file, so that a link to it stays a link."""
    return Path(os.path.realpath(path))


def _encoded(text: str, before: bytes | None) -> bytes:
    return (b"\xef\xbb\xbf" if (before or b"").startswith(b"\xef\xbb\xbf") else b"") + text.encode()


def _refused(path: Path, error: NotJSON) -> Refused:
    return Refused(f"{path} is not valid JSON: {error}", hint="Nothing was changed. Fix it, and try again.")


def _is_own_file(before: bytes, text: str) -> bool:
    return before.partition(b"\n")[0] == text.encode().partition(b"\n")[0]


def _is_only(text: str, frame: Mapping[str, object]) -> bool:
    try:
        return durable.parse_json(text) in ({}, dict(frame), {**frame, "hooks": {}})
    except ValueError:
        return False


def read_settings_file(path: Path) -> bytes | None:
    """Read a settings file; None if there is none. Refused if it is not a file, or too large."""
    try:
        return durable.read_file(path, max_bytes=_MAX_BYTES)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise Refused(f"{path} is a folder", hint="Move it away, and try again.") from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            size = f"{_MAX_BYTES >> 20} MiB"
            raise Refused(f"{path} is larger than {size}", hint="It does not look like a settings file.") from None
        if error.errno == errno.EINVAL:
            raise Refused(f"{path} is not a file", hint="Move it away, and try again.") from None
        raise


def decode_settings(path: Path, data: bytes | None) -> str:
    """Decode a settings file. Refused if it is not UTF-8."""
    try:
        return (data or b"").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refused(f"{path} is not UTF-8", hint="Nothing was changed. Save it as UTF-8, and try again.") from None
