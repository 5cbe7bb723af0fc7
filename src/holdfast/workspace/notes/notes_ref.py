"""Reading and writing the notes ref of the user's repository: the only ref that is written, and only on request.

A note is a blob in the tree of a commit, named by the commit that it is about, in folders of two digits if there are
many. Objects are written first, then the ref is moved if it is still where it was read (the commit point, P3). A kill
before that leaves objects that nothing names, which git removes in time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.errors import Refused, Unavailable

if TYPE_CHECKING:
    from pygit2 import Repository as UserRepository

NOTES_REF = "refs/notes/holdfast"
_TRIES = 50
_PAUSE_S = 0.02
_HEX = re.compile(r"[0-9a-f]+")
_ID_CHARS = 40
_FILE, _FOLDER = 0o100644, 0o040000
_MESSAGE = "Notes added by holdfast notes"
_MOST_BYTES = 64 << 20


class NotesRef:
    """The notes of one repository."""

    def __init__(self, user: UserRepository) -> None:
        self._user = user

    def all_commits(self) -> list[str]:
        """Return the ids of everything that has a note, sorted."""
        tip = self._tip()
        return sorted(name for name, _ in self._notes(self._tree(tip))) if tip is not None else []

    def read(self, commit: str) -> bytes | None:
        """Return the note of a commit; None if it has none."""
        return self._old(self._tip(), commit)

    def write(
        self, change: Callable[[str, bytes | None], bytes | None], commits: list[str], now: datetime
    ) -> list[str]:
        """Change the notes of commits in one commit of the notes; return those that were changed.

        `change` gets a commit and its note, and returns the new one, or None to leave it. It is called again if
        another process moves the ref meanwhile: no note of others is lost. Unavailable if that happens too often.
        """
        from pygit2 import AlreadyExistsError, GitError

        problem = ""
        for _ in range(_TRIES):
            reference = self._reference()
            tip = reference.target if reference is not None else None
            changed: dict[str, bytes] = {}
            for commit in commits:
                old = self._old(tip, commit)
                if (data := change(commit, old)) is not None and data != old:
                    changed[commit] = data
            if not changed:
                return []
            try:
                made = self._commit(tip, changed, now)
                if reference is None:
                    self._user.references.create(NOTES_REF, made)  # fails if there is one meanwhile
                else:
                    reference.set_target(made, _MESSAGE)  # fails if it moved meanwhile
            except (AlreadyExistsError, GitError, ValueError, OSError) as error:
                problem = str(error)
                time.sleep(_PAUSE_S)  # another process holds the lock of the ref, or has moved it
                continue
            return list(changed)
        raise Unavailable(f"{NOTES_REF} cannot be written: {problem}", hint="No note was changed; try again.")

    def _old(self, tip: Any, commit: str) -> bytes | None:
        entry = self._find(self._tree(tip), commit) if tip is not None else None
        if entry is None:
            return None
        blob: Any = self._user[entry]
        if blob.size > _MOST_BYTES:
            raise Refused(f"the note of {commit[:10]} is larger than {_MOST_BYTES >> 20} MiB", hint="Remove it.")
        return bytes(blob.data)

    def _reference(self) -> Any:
        """Return the ref; None if there is none. Refused if it is symbolic: another ref would be written (P6)."""
        from pygit2.enums import ReferenceType

        found = self._user.references.get(NOTES_REF)
        if found is not None and found.type != ReferenceType.DIRECT:
            hint = "Remove it: no other ref is written."
            raise Refused(f"{NOTES_REF} is a symbolic ref to {found.target}", hint=hint)
        return found

    def _tip(self) -> Any:
        found = self._reference()
        return found.target if found is not None else None

    def _tree(self, tip: Any) -> Any:
        from pygit2 import Commit, GitError

        try:
            return self._user[tip].peel(Commit).tree
        except (KeyError, GitError, ValueError):
            raise Refused(f"{NOTES_REF} does not contain git notes", hint="Delete or rename that ref.") from None

    def _notes(self, tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Yield (id, blob) of all notes."""
        for entry in tree:
            name = prefix + (entry.name or "")
            if not _HEX.fullmatch(entry.name or "") or len(name) > _ID_CHARS:
                continue  # not a note
            if entry.filemode == _FOLDER and len(entry.name) == 2:
                yield from self._notes(self._user[entry.id], name)
            elif len(name) == _ID_CHARS and entry.filemode != _FOLDER:
                yield name, entry.id

    def _find(self, tree: Any, commit: str) -> Any:
        """Return the blob of a commit's note: under its whole name, or in folders of two digits each."""
        at = 0
        while True:
            if commit[at:] in tree and tree[commit[at:]].filemode != _FOLDER:
                return tree[commit[at:]].id
            folder = commit[at : at + 2]
            if folder not in tree or tree[folder].filemode != _FOLDER:
                return None
            tree, at = self._user[tree[folder].id], at + 2

    # writing

    def _commit(self, tip: Any, changed: Mapping[str, bytes], now: datetime) -> Any:
        import pygit2
        from pygit2 import Signature
        from pygit2.enums import Option

        pygit2.option(Option.ENABLE_FSYNC_GITDIR, True)  # P3: objects reach the disk before the ref names them
        blobs = {commit: self._user.create_blob(data) for commit, data in changed.items()}
        tree = self._with(self._tree(tip) if tip is not None else None, blobs, 0)
        who = self._who()
        signature = Signature(*who, int(now.timestamp()), 0)
        return self._user.create_commit(None, signature, signature, _MESSAGE + "\n", tree, [tip] if tip else [])

    def _with(self, tree: Any, blobs: Mapping[str, Any], at: int) -> Any:
        """Write a tree with notes added or replaced, in folders where there are some; everything else stays."""
        builder = self._user.TreeBuilder(tree) if tree is not None else self._user.TreeBuilder()
        folders = {entry.name for entry in tree or () if entry.filemode == _FOLDER and len(entry.name or "") == 2}
        deeper: dict[str, dict[str, Any]] = {}
        for commit, blob in blobs.items():
            folder, name = commit[at : at + 2], commit[at:]
            if folders and (tree is None or name not in tree):
                deeper.setdefault(folder, {})[commit] = blob
            else:
                builder.insert(name, blob, _FILE)
        for folder, inner in deeper.items():
            known = self._user[tree[folder].id] if folder in folders else None
            builder.insert(folder, self._with(known, inner, at + 2), _FOLDER)
        return builder.write()

    def _who(self) -> tuple[str, str]:
        try:
            signature = self._user.default_signature
        except KeyError:
            return "Holdfast", "holdfast@localhost"
        return signature.name, signature.email


def user_email(user: UserRepository) -> str:
    """Return the address that the user's git is configured with; empty if it has none."""
    try:
        return str(user.default_signature.email)
    except KeyError:
        return ""
