"""`Workspace`: saves, lists, compares, restores and verifies checkpoints of one folder."""

from __future__ import annotations

import builtins
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from holdfast import durable
from holdfast.durable.os_errors import os_errors
from holdfast.errors import HoldfastError, NotFound, Refused, Remedy, Unavailable
from holdfast.model.checkpoint import TYPES
from holdfast.model.documents import short
from holdfast.validation import (
    check_count,
    check_flag,
    check_known,
    check_limit,
    check_optional_text,
    check_path,
    check_patterns,
    check_place,
    check_text,
    checked_options,
    parameters_of,
)
from holdfast.workspace import store_paths
from holdfast.workspace.restore.journal import Journal
from holdfast.workspace.store_trust import check_private
from holdfast.workspace.stored.attribution import FirstSaves
from holdfast.workspace.stored.repository import AT, BISECT_NOTE, Repository, plain_text
from holdfast.workspace.stored.state_json import OnUnknown, Spelling

if TYPE_CHECKING:
    from holdfast.model import (
        JSON,
        Bisected,
        Blame,
        Changes,
        Checkpoint,
        CheckpointDiff,
        CheckpointRef,
        Compacted,
        Exported,
        Hunk,
        Match,
        PathChange,
        Plan,
        Progress,
        Pruned,
        Purged,
        PurgePlan,
        Recovery,
        Restored,
        Usage,
        VerifyReport,
        Why,
    )
    from holdfast.retention import Policy
    from holdfast.scan.sweep import EarlySweep
    from holdfast.serde import Registry
    from holdfast.times import Span
    from holdfast.workspace.bisect import Tell, Test
    from holdfast.workspace.capture.save import StateAndMetadata
    from holdfast.workspace.capture.watch_state import Watching
    from holdfast.workspace.check import CheckResult, Checks, CheckStatus
    from holdfast.workspace.engine import Engine
    from holdfast.workspace.git_losses import GitLosses
    from holdfast.workspace.git_rescue import GitRescue
    from holdfast.workspace.guard import Guard
    from holdfast.workspace.imports import Imports
    from holdfast.workspace.notes.notes import CheckedNote, Notes, WrittenNote
    from holdfast.workspace.pathspec import Paths
    from holdfast.workspace.requests import RestoreRequest, SaveRequest
    from holdfast.workspace.secrets import SecretReport
    from holdfast.workspace.status import Attention, WorkspaceStatus
    from holdfast.workspace.stored.catalog import Catalog, Row
    from holdfast.workspace.stored.files import StoredPath
    from holdfast.workspace.stored.history import Turn, TurnPage
    from holdfast.workspace.stored.turn_log import TurnStart
    from holdfast.workspace.upkeep.growth import Notice, Thinned
    from holdfast.workspace.upkeep.purge import Position, Purger

T = TypeVar("T")
Place = str | os.PathLike[str]
_UNCHANGED = "Nothing was saved or changed."
_PAGE = 100


@checked_options
class Workspace:
    """A folder and its checkpoints.

    Any number of processes and threads may use one workspace at once. Writers wait for each other; readers never wait
    (P9). An interrupted restore is finished or rolled back before anything else (P3); `recovered` says which. If that
    fails, `recovery_error` says why: until it succeeds, checkpoints can be read but nothing can be written. An
    interrupted purge is continued before the next write; `purge_error` says why it could not be.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        store: str | os.PathLike[str] | None = None,
        exclude_patterns: Sequence[str] = (),
        ignored_file_max_bytes: int = 1 << 20,
        ignored_total_max_bytes: int = 64 << 20,
        allow_home: bool = False,
        trust_store: bool = False,
        create: bool = True,
        missing_ok: bool = False,
        watch: bool = False,
        registry: Registry | None = None,
        on_unknown: OnUnknown = "raise",
        home: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        scan_secrets: bool = True,
        redact: bool = False,
        git_objects_max_bytes: int = 512 << 20,
        check_command: str | None = None,
        check_timeout_s: float = 600.0,
        clock: Callable[[], datetime] | None = None,
        zone: tzinfo | None = None,
    ) -> None:
        """Open a folder's store, or create it (unless `create` is False: NotFound). `watch` calls `watch()`.

        With `missing_ok`, a folder that was deleted is opened too, if it has checkpoints: these can be read, and
        `restore` makes the folder again.

        `registry`: your classes that a state may contain; None stands for those of `holdfast.serde.register`.
        `on_unknown`: what to do with a class that is not registered: "raise", "keep" its values opaque, or return
        such states as `Tagged` JSON.
        `scan_secrets`: look for keys and passwords in what is saved; `status` and `secrets` list them.
        `check_command`: what says whether a checkpoint is good; `check` runs it, in a shell, with this deadline.
        `redact`: replace them in conversations that agents' hooks capture; never in files.
        `git_objects_max_bytes`: at most this much is stored of the objects that only the folder's git repository has.
        `zone`: the time zone of times such as `@14:05`; None is that of this computer.
        Refused for the home folder and system folders, for a store inside the workspace, and for a store that other
        users own or can read or write, unless `trust_store`.
        """
        # Longer than other functions: it has one line for each option, and sets each attribute once.
        environ = os.environ if environ is None else environ
        home = Path(check_place(home, "the home folder")) if home is not None else store_paths.home_folder()
        exclude_patterns = check_patterns(exclude_patterns)
        self.path = store_paths.real_workspace(
            path, home=home, allow_home=allow_home, store=store, environ=environ, missing_ok=missing_ok
        )
        self._missing_ok = missing_ok
        self.store = store_paths.store_folder(self.path, store=store, environ=environ)
        self.moved_from: str | None = None
        """Where the folder was when its store was last used, if it was moved; the next write makes it known."""
        if store is None and not (self.store / "HEAD").exists():
            self._find_moved(environ)
        if not trust_store:
            with os_errors(self.store, outcome=_UNCHANGED):
                check_private(self.store, environ)  # P7: before reading anything in it
        self._clock = now = clock or _now

        def when(text: str) -> Span:
            from holdfast.times import parse_time  # start-up cost: most commands name no time

            return parse_time(text, now=now(), zone=zone)

        self.parse_time = when
        self._reopening = {"allow_home": allow_home, "trust_store": trust_store}
        self._repository = Repository(self.store, Spelling(registry, on_unknown=on_unknown), when)
        self._environ = environ
        self.redact = redact
        self.check_command = check_optional_text(check_command, "check_command") or None
        self._check_timeout_s = check_timeout_s
        self._scans_secrets = scan_secrets
        self._engine_options: dict[str, Any] = {
            "exclude_patterns": exclude_patterns,
            "ignored_max_bytes": (
                check_count(ignored_file_max_bytes, "ignored_file_max_bytes"),
                check_count(ignored_total_max_bytes, "ignored_total_max_bytes"),
            ),
            "home": home,
            "file_clock": time.time_ns,
            "config_home": Path(environ.get("XDG_CONFIG_HOME") or home / ".config"),
            "scans_secrets": scan_secrets,
        }
        self._git_max_bytes = check_count(git_objects_max_bytes, "git_objects_max_bytes")
        self._defers_git = False
        self._engine_made: Engine | None = None
        self._engine_lock = threading.Lock()
        self._early_sweep: EarlySweep | None = None
        self.first_saves = FirstSaves()
        self.recovered: Recovery | None = None
        self.recovery_error: HoldfastError | None = None
        self.purge_error: HoldfastError | None = None
        with os_errors(self.store, outcome=_UNCHANGED):
            self._open(create=create)
        if watch:
            self.watch()

    def __repr__(self) -> str:
        return f"Workspace({os.fspath(self.path)!r})"

    # making checkpoints

    def save(
        self,
        message: str = "",
        *,
        state: Mapping[str, JSON] | None = None,
        session: str | None = None,
        actor: str | None = None,
        step: int | None = None,
        metadata: Mapping[str, JSON] | None = None,
        name: str | None = None,
        pinned: bool = False,
        allow_empty: bool = False,
        rehash: bool = False,
        include: Paths = (),
        progress: Progress | None = None,
    ) -> Checkpoint:
        """Save the folder as it is now, with named state (any values that `holdfast.serde` knows), in one checkpoint.

        If nothing changed, return the checkpoint that the folder is at (the latest, or the one restored), unless
        `allow_empty`, a name or a pin asks for a new one. `is_new` of the result says whether this call made it; that
        is decided under the store's lock, so of several processes that save the same content exactly one made it.
        `rehash` reads every file instead of trusting times; paths in `include` are saved whatever the ignore rules
        say. What could not be saved is in the result's `uncovered`, and `complete` is then False (P4). On an error
        nothing is left behind (P3).
        """
        from holdfast.workspace.pathspec import as_text, inside
        from holdfast.workspace.requests import SaveRequest

        return self.save_request(
            SaveRequest(
                message,
                state=state,
                session=session,
                actor=actor,
                step=step,
                metadata=metadata,
                name=name,
                pinned=pinned,
                allow_empty=allow_empty,
                rehash=rehash,
                include=[inside(path, self.path) for path in as_text(include) or ()],
                progress=progress,
            )
        )

    def save_request(self, request: SaveRequest) -> Checkpoint:
        """Do what `save` does, with its arguments in one object."""
        with self._writing(scans=True):
            checkpoint = self._engine.saver.save(request)
        return self._with_git(checkpoint)

    def after_save(self) -> builtins.list[Notice]:
        """Do what follows a save and must not delay it: hold objects of git, start `thin` in a process of its own if
        it is due.

        Returns what to tell the user: large new files, each once, and a store that grows fast, once a day. The command
        line and the hooks of agents call this; a program that only uses `Workspace` decides itself what is deleted.
        """
        from holdfast.workspace.upkeep.growth import Saved, after_save, start_holding

        large = self._engine.saver.take_large_files()
        now = self._clock().timestamp()
        saved = Saved(self.path, self.store, now, large, self._reopening, self._environ)
        if self._engine.saver.git.is_wanting and not self._hold_git():
            start_holding(saved)
        return after_save(saved)

    def defer_git(self) -> None:
        """Have saves leave the objects of the user's git to `after_save`; for a process that calls it after each."""
        self._defers_git = True

    def hold_git(self) -> bool:
        """Store the objects of the user's git that checkpoints name and no remote has, however long that takes.

        False if there is no git program or no repository. A save does this by itself, as far as it takes seconds only.
        """
        return self._hold_git(in_save=False)

    def _hold_git(self, *, in_save: bool = True) -> bool:
        from holdfast.scan.user_git import git_program
        from holdfast.workspace.capture import git_hold  # start-up cost: most saves find git unchanged

        git, program = self._engine.scanner.git_dir(), git_program(self._environ)
        if git is None or program is None:
            return False
        recorder = self._engine.saver.git
        holder = git_hold.GitHolder(self._repository, recorder, self._writing, program, max_bytes=self._git_max_bytes)
        is_done = holder.hold(git, timeout_s=git_hold.IN_SAVE_S if in_save else None)
        recorder.is_wanting = recorder.is_wanting and not is_done
        return is_done

    def _with_git(self, checkpoint: Checkpoint) -> Checkpoint:
        """Hold what a new checkpoint names, unless that is deferred; return it as it is then. Fails no save (P4)."""
        if self._defers_git or not self._engine.saver.git.is_wanting:
            return checkpoint
        with contextlib.suppress(HoldfastError, OSError, ValueError):
            self._hold_git()
            return checkpoint.replace(commit=self._repository.objects.ref(checkpoint.id).hex())
        return checkpoint

    def save_changes(
        self,
        message: str = "",
        *,
        details: Callable[[], StateAndMetadata],
        session: str | None = None,
        actor: str | None = None,
        progress: Progress | None = None,
    ) -> Checkpoint | None:
        """Save the folder if it differs from `head()`; None if it does not.

        For attribution: `save` may return an older checkpoint with the same content, this never does. `details` is
        called once, only if there is something to save, and under the store's lock.
        """
        from holdfast.workspace.requests import SaveRequest

        request = SaveRequest(message, session=session, actor=actor, progress=progress)
        with self._writing(scans=True):
            checkpoint = self._engine.saver.save_changes(request, details)
        return checkpoint and self._with_git(checkpoint)

    def import_from(
        self, other: Workspace, ref: CheckpointRef, message: str = "", *, metadata: Mapping[str, JSON] | None = None
    ) -> Checkpoint:
        """Copy a checkpoint of another workspace, files and state, into this one as a new checkpoint.

        The folder is not changed; `restore` the new checkpoint for that.
        """
        from holdfast.workspace.import_checkpoint import import_checkpoint
        from holdfast.workspace.requests import SaveRequest

        label = SaveRequest(message, metadata=metadata).label()
        found, source = other.get(ref), other._repository
        with self._writing():
            return import_checkpoint(self._repository, source, found, label, self._clock())

    def imports(self) -> Imports:
        """Return what adds checkpoints of other tools to this workspace. The folder is not changed."""
        from holdfast.workspace.imports import Imports

        return Imports(self._repository, self._writing)

    def delete(self, ref: CheckpointRef) -> Checkpoint:
        """Delete a checkpoint; its id is never used again. Other checkpoints do not change."""
        with self._writing():
            checkpoint = self._repository.find(ref)
            self._repository.delete(checkpoint)
            return checkpoint

    # finding them

    def list(
        self,
        limit: int | None = 50,
        *,
        session: str | None = None,
        actor: str | None = None,
        safety: bool = False,
        before: CheckpointRef | None = None,
        type: str | None = None,  # noqa: A002  the key in the metadata
        after: CheckpointRef | None = None,
        up_to: CheckpointRef | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        grep: str | None = None,
        paths: Paths | None = None,
    ) -> list[Checkpoint]:
        """List checkpoints, newest first, the newest 50 unless `limit` says otherwise (None: all of them).

        With `safety`, also those saved before restores. `actor` is an agent, including its sub-agents, or `user`.
        `type` is "automatic", "manual", "feature" or "session": see `holdfast.project`.
        `before` is any reference, and only older checkpoints are listed: pass the last of one page to get the next,
        even if that checkpoint was deleted meanwhile. `after` and `up_to` are references, too: the list ends after the
        first, and begins with the other.
        `since` and `until` are times: a datetime, or text such as `10m`, `14:05`, `yesterday` or `2026-11-01`. `grep`
        is a regular expression for the message or the prompt, `paths` are files, folders or globs that changed.
        """
        from itertools import islice

        limit = check_limit(limit)
        if type is not None and type not in TYPES:
            raise Refused(f"there is no type {type!r}", hint=f"Choose one of {', '.join(TYPES)}.")
        filters = self._filters(type=type, session=session, actor=actor, safety=safety, since=since, until=until)
        with self._reading():
            older = None if before is None else self._repository.page_end(before)
            filters["after"] = None if after is None else self._repository.find(after).id
            filters["up_to"] = None if up_to is None else self._repository.find(up_to).id
            if grep is None and paths is None:
                rows = self._repository.catalog.newest(limit=limit, before=older, **filters)
                return [self._repository.checkpoint(row) for row in rows]
            found = self._repository.consistently
            return found(lambda: [*islice(self._matching(grep, paths, older, **filters), limit)])

    def turns(self, limit: int | None = 20, *, before: CheckpointRef | None = None, **filters: Any) -> TurnPage:
        """List the turns of agents and the saves of people, newest first, each with what it changed.

        A turn that changed nothing has no checkpoints; it does not count for `limit`. `before` and `filters` are those
        of `list`; `next` of the result is `before` of the next page, on which a turn that others interrupted may go on.
        """
        from itertools import islice

        from holdfast.workspace.stored.history import Summaries, TurnPage, group_turns, next_page

        check_known(filters, set(parameters_of(Workspace.list)) - {"limit", "before"}, "turns")
        limit = check_limit(limit)

        def checkpoints() -> Iterator[Checkpoint]:
            end = before
            while page := self.list(_PAGE, before=end, **filters):
                yield from page
                end = page[-1].id
                if len(page) < _PAGE:
                    break

        found = [*islice(group_turns(checkpoints()), None if limit is None else limit + 1)]
        shown = found[:limit]
        next_before = next_page(shown, found[len(shown) :])
        every = self._with_starts(shown, before, next_before, filters)
        with os_errors(self.store, outcome=_UNCHANGED):  # `list` has just made the catalog agree with the refs
            summaries = Summaries(self._repository).of(every)
        return TurnPage(tuple(every), tuple(summaries), next_before)

    def group(
        self,
        checkpoints: Sequence[Checkpoint],
        *,
        before: CheckpointRef | None = None,
        more: bool = False,
        **filters: Any,
    ) -> builtins.list[Turn]:
        """Group a page of `list` into turns, newest first, with those in between that changed nothing.

        `before` and `filters` are those of the page; `more` says whether there are older ones.
        """
        from holdfast.workspace.stored.history import group_turns

        oldest = checkpoints[-1].id if checkpoints and more else None
        return self._with_starts([*group_turns(checkpoints)], before, oldest, filters)

    def _with_starts(
        self, turns: Sequence[Turn], before: CheckpointRef | None, oldest: str | None, filters: Mapping[str, Any]
    ) -> builtins.list[Turn]:
        """Add when turns began, and those that changed nothing, as far as the filters of a list let them through."""
        from holdfast.workspace.stored.history import message_pattern, with_starts
        from holdfast.workspace.stored.ids import sequence_of
        from holdfast.workspace.stored.turn_log import TurnLog

        since, until = (
            None if filters.get(name) is None else self._moment(filters[name], end=name == "until").isoformat()
            for name in ("since", "until")
        )
        pattern = None if filters.get("grep") is None else message_pattern(filters["grep"])
        is_narrow = any(filters.get(name) is not None for name in ("paths", "type", "after", "up_to"))

        def is_wanted(start: TurnStart) -> bool:
            return (
                not is_narrow
                and filters.get("session") in (None, start.session)
                and filters.get("actor") in (None, start.agent)
                and (since is None or start.at >= since)
                and (until is None or start.at <= until)
                and (pattern is None or bool(pattern.search(start.prompt)))
            )

        end = None if before is None else sequence_of(self._repository.page_end(before))
        return with_starts(
            turns,
            TurnLog(self._repository.own).read(),
            newest=end,
            oldest=0 if oldest is None else sequence_of(oldest) or 0,
            empty=is_wanted,
        )

    def turn(self, which: int | CheckpointRef | None = None, *, agent: str | None = None) -> Turn:
        """Get a turn of an agent: by its number, or by any checkpoint of it; None: the latest one that was not undone.

        `agent` is the only one that counts. NotFound if the folder went through no such turn.
        """
        from holdfast.workspace.stored.history import find_turn

        check_optional_text(agent, "agent")
        with self._reading():
            return self._repository.consistently(lambda: find_turn(self._repository, which, agent))

    def begin_turn(self, *, agent: str, session: str | None, turn: str, prompt: str = "") -> TurnStart:
        """Note that a turn of an agent begins, so that it is listed even if it changes nothing; give it a number.

        Pass `turn` and, as `turn_number`, the number in the metadata of the checkpoints of the turn. The same turn
        again gets the same number.
        """
        from holdfast.workspace.stored.attribution import TURN_NUMBER, TurnKey
        from holdfast.workspace.stored.turn_log import TurnLog

        key = TurnKey(check_text(agent, "agent"), check_optional_text(session, "session"), check_text(turn, "turn"))
        with self._reading():
            newest = self._repository.catalog.greatest()
            last = self._repository.catalog.nth(0)
            known = self._repository.checkpoint(last).metadata.get(TURN_NUMBER) if last else None
            return TurnLog(self._repository.own).begin(
                key,
                check_text(prompt, "prompt"),
                at=self._clock().astimezone(UTC).isoformat(),
                after=newest.sequence if newest else 0,
                least=known + 1 if isinstance(known, int) else 1,
            )

    def end_turn(self, number: int, closing: str) -> None:
        """Note what an agent said at the end of the turn with this number, of `begin_turn`. The last call counts."""
        from holdfast.workspace.stored.turn_log import TurnLog

        with os_errors(self.store, outcome=_UNCHANGED):
            TurnLog(self._repository.own).note_closing(number, check_text(closing, "closing"))

    def note_turn_change(self, number: int) -> None:
        """Note that a turn has a checkpoint: if it is deleted one day, the turn is not one that changed nothing."""
        from holdfast.workspace.stored.turn_log import TurnLog

        with os_errors(self.store, outcome=_UNCHANGED):
            TurnLog(self._repository.own).note_change(number)

    def reviewed(self, ref: CheckpointRef) -> frozenset[str]:
        """Return the digests of what is marked as reviewed in a checkpoint; `digest_of` makes one of a mark."""
        from holdfast.workspace.stored.reviewed import ReviewMarks

        with self._reading():
            return ReviewMarks(self._repository.own).read(self._repository.find(ref).id)

    def mark_reviewed(self, ref: CheckpointRef, marks: Iterable[str], *, is_reviewed: bool = True) -> frozenset[str]:
        """Mark something of a checkpoint as reviewed, or no longer: ids of hunks, or any texts. Returns all digests.

        The marks stay with the checkpoint, and go with it.
        """
        from holdfast.workspace.stored.reviewed import ReviewMarks

        chosen = [check_text(each, "a mark") for each in marks]
        with self._writing():
            checkpoint = self._repository.find(ref)
            kept = ReviewMarks(self._repository.own)
            kept.sweep(set(self._repository.objects.ref_names()))
            return kept.change(checkpoint.id, chosen, is_reviewed=is_reviewed)

    def overview(self) -> builtins.list[tuple[str, str, str]]:
        """Return the id, the time (ISO 8601 in UTC) and the actor of every save, oldest first: for a picture of all."""
        with self._reading():
            return self._repository.catalog.overview()

    def _filters(
        self,
        *,
        type: str | None,  # noqa: A002  the key in the metadata
        session: str | None,
        actor: str | None,
        safety: bool,
        since: str | datetime | None,
        until: str | datetime | None,
    ) -> dict[str, Any]:
        """Check what a list is filtered by, and return it as the catalog takes it."""
        return {
            "type": type,
            "session": plain_text(check_optional_text(session, "session")),
            "actor": plain_text(check_optional_text(actor, "actor")),
            "safety": safety,
            "since": None if since is None else self._moment(since, end=False).isoformat(),
            "until": None if until is None else self._moment(until, end=True).isoformat(),
        }

    def _moment(self, when: str | datetime, *, end: bool) -> datetime:
        """Return a time in UTC; of a day, its beginning or its end."""
        if isinstance(when, datetime):
            return when.astimezone(UTC)
        span = self.parse_time(check_text(when, "a time").removeprefix(AT))  # as it names a checkpoint, too
        return span.end if end else span.start

    def _matching(
        self, grep: str | None, paths: Paths | None, before: str | None, **filters: Any
    ) -> Iterator[Checkpoint]:
        """Yield the checkpoints whose message or prompt matches, and that changed one of the paths; newest first."""
        from holdfast.workspace.pathspec import as_text, open_scope
        from holdfast.workspace.stored.history import message_pattern, prompt_of

        pattern = None if grep is None else message_pattern(grep)
        repository = self._repository
        if paths is None:
            rows: Iterable[Row] = _in_pages(repository.catalog, before, filters)
        else:
            from holdfast.workspace.stored.changed_lists import ChangedLists

            scope = open_scope(as_text(paths), self.path, repository.has_path)
            rows = ChangedLists(repository).changing(scope, before, filters)
        for row in rows:
            found = repository.checkpoint(row)
            if pattern is None or pattern.search(f"{found.message}\n{prompt_of(found)}"):
                yield found

    def get(self, ref: CheckpointRef) -> Checkpoint:
        """Get a checkpoint by id, unique prefix of an id, name, `latest`, `latest~2`, or time.

        A time is `@10m`, `@14:05`, `@yesterday` or `@2026-11-01T10:00`: the newest save that is not later.
        Wherever a checkpoint is named, the checkpoint itself may be given instead: `diff(before, after)`.
        """
        with self._reading():
            return self._repository.find(ref)

    def head(self) -> Checkpoint | None:
        """Get the checkpoint that the folder was last equal to: the newest save, or the target of the last restore."""
        with self._reading():
            return self._repository.head()

    def diff(self, a: CheckpointRef, b: CheckpointRef | None = None, paths: Paths | None = None) -> CheckpointDiff:
        """Compare two checkpoints, or one with the folder as it is now."""
        with self._reading():
            return self._repository.consistently(lambda: self._engine.diff(a, b, paths))

    def changes(self, a: CheckpointRef, b: CheckpointRef | None = None, paths: Paths | None = None) -> Changes:
        """Compare as `diff` does, and return hunks that `revert` can take back."""
        with self._reading():
            return self._repository.consistently(lambda: self._engine.changes(a, b, paths))

    def state(self, ref: CheckpointRef, name: str) -> JSON:
        """Read one named state of a checkpoint, and no other. NotFound if it has none of that name."""

        def look() -> JSON:
            return self._repository.one_state(self._repository.find(ref), name)

        with self._reading():
            return self._repository.consistently(look)

    def status(self) -> WorkspaceStatus:
        """Say which checkpoint is the last one, what changed since, how much disk is used, and what needs attention.

        Reads the folder as a save does, and stores nothing but what a pending scan for secrets finds.
        """
        from holdfast.workspace.status import SECRETS_MAX_BYTES, read_status

        with self._reading():
            self.scan_pending(SECRETS_MAX_BYTES)
            found = self._repository.consistently(
                lambda: read_status(self._repository, self._engine.scanner, self._clock(), self._troubles())
            )
            return found._replace(check=self.check_status())

    def git_losses(self, ref: CheckpointRef | None = None) -> GitLosses:
        """Return what the user's git has lost since a checkpoint: branches, stashes, commits (P6: only reads).

        ref: the checkpoint to compare with; None: the newest one that recorded git. NotFound if none did.
        """
        from holdfast.scan.user_git import git_program
        from holdfast.workspace.git_losses import find_losses

        program = git_program(self._environ)
        with self._reading():
            return self._repository.consistently(lambda: find_losses(self._repository, self.path, ref, program))

    def rescue_git(self, ref: CheckpointRef | None = None, *, index: bool = False) -> GitRescue:
        """Bring back what `git_losses` finds: branches as `rescued/…`, stashes as stashes, a removed repository as a
        whole. Nothing is overwritten, no branch moves. With `index`, replace the index too; a copy of it stays.

        Unavailable without the git program.
        """
        from holdfast.scan.user_git import git_program
        from holdfast.workspace.git_losses import git_dir_now, read_recorded
        from holdfast.workspace.git_rescue import Rescuer

        program = git_program(self._environ)
        if program is None:
            raise Unavailable("the git program was not found", hint="Install git.")
        found = self.git_losses(ref)
        with self._reading():
            recorded = read_recorded(self._repository, found.checkpoint, self.path)
            git = git_dir_now(self.path, recorded)
            return Rescuer(self._repository, self.path, program, recorded).rescue(found, git, index=index)

    def write_notes(self, commits: Sequence[str] = ()) -> builtins.list[WrittenNote]:
        """Write who wrote which lines of commits as git notes, in `refs/notes/holdfast`; no other ref is written (P6).

        commits: as git names them, also ranges (`A..B`); none: HEAD. Authors are found by the content of the lines, and
        unknown where checkpoints do not tell. Text of others in such a note stays. All notes are written, or none.
        """
        return self._with_notes(lambda notes: notes.write(commits))

    def check_notes(self, commits: Sequence[str] = ()) -> builtins.list[CheckedNote]:
        """Compare notes of commits with the checkpoints; without commits, all that there are, and that of HEAD."""
        return self._with_notes(lambda notes: notes.check(commits))

    def traces(self, commits: Sequence[str] = ()) -> builtins.list[dict[str, Any]]:
        """Return what `write_notes` would write, as Agent Trace records, and write nothing."""
        return self._with_notes(lambda notes: notes.traces(commits))

    def _with_notes(self, work: Callable[[Notes], T]) -> T:
        from holdfast.workspace.notes.notes import Notes

        def look() -> T:
            with self._repository.catalog.kept_open():
                return work(Notes(self._repository, self.path, clock=self._clock))

        with self._reading():
            return self._repository.consistently(look)

    def _troubles(self) -> builtins.list[Attention]:
        """What opening the workspace found to need attention."""
        from holdfast.workspace.status import Attention

        found = []
        if self.recovery_error is not None:
            found.append(Attention("interrupted-restore", f"a restore was interrupted: {self.recovery_error.message}"))
        elif Journal(self._repository.own).exists:
            found.append(Attention("running-restore", "a restore is running, or was interrupted"))
        if self.recovered is not None:
            message = f"a restore that was interrupted has been {self.recovered.outcome} now"
            found.append(Attention("recovered-restore", message, tuple(self.recovered.failed)))
        if (before := self.interrupted_bisect) is not None:
            message = (
                f"a bisection in place was killed and left an old state; {short(before.id)} has the folder as it was"
            )
            found.append(Attention("interrupted-bisect", message))
        if self._repository.is_purging:
            found.append(Attention("interrupted-purge", "a purge was interrupted; the next save continues it"))
        if self.moved_from is not None:
            found.append(
                Attention("moved-folder", f"the folder was {self.moved_from} before; its checkpoints continue")
            )
        if self.check_command is not None:
            from holdfast.workspace.check import is_allowed

            if not is_allowed(self._repository.own, self.check_command):
                message = f"the check command is not allowed to run: {self.check_command}"
                found.append(Attention("check-not-allowed", message, remedy=Remedy("allow_check")))
        latest = self._repository.catalog.nth(0)
        if latest is not None and not self._repository.checkpoint(latest).complete:
            failed = [each for each in self._repository.checkpoint(latest).uncovered if each.reason.is_failure]
            message = f"the last save, {short(latest.id)}, does not contain everything"
            found.append(Attention("incomplete", message, tuple(each.path or "." for each in failed)))
        return found

    def file(self, ref: CheckpointRef, path: Place) -> StoredPath:
        """Get one path of a checkpoint: `read()` or `chunks()` for its content. NotFound if it has no such path."""
        from holdfast.workspace.pathspec import inside
        from holdfast.workspace.stored.files import find_path

        name = inside(check_path(path, "path"), self.path)
        with self._reading():
            return self._repository.consistently(lambda: find_path(self._repository, self._repository.find(ref), name))

    def changed_paths(self, ref: CheckpointRef) -> builtins.list[PathChange]:
        """Say which files a checkpoint changed, compared with its parent, and how: added, modified, deleted, renamed.
        A save is compared with the save before it, even if a safety checkpoint lies between.

        Lines are counted unless the files are many. Without a parent, every file is added; if the parent was deleted,
        the letters are those against the nearest older save, and lines are not counted.
        """
        from holdfast.workspace.stored.history import changes_of

        with self._reading():
            return self._repository.consistently(lambda: changes_of(self._repository, self._repository.find(ref)))

    def changed_count(self, ref: CheckpointRef) -> int:
        """Count the files that `changed_paths` names: a renamed one once. Takes little time for a new checkpoint."""
        from holdfast.workspace.stored.history import count_changes

        def is_there(path: str) -> bool:
            return os.path.lexists(self.path / path)

        with self._reading():
            return self._repository.consistently(
                lambda: count_changes(self._repository, self._repository.find(ref), is_there)
            )

    def shown_parent(self, ref: CheckpointRef) -> Checkpoint | None:
        """Get what `changed_paths` compares a checkpoint with; None if it has no parent, or that was deleted."""
        with self._reading():
            return self._repository.shown_parent(self._repository.find(ref))

    def search(
        self,
        text: str,
        *,
        regex: bool = False,
        ignore_case: bool = False,
        paths: Paths | None = None,
        limit: int = 1000,
        skip_damaged: bool = False,
        progress: Progress | None = None,
        found: Callable[[Match], object] | None = None,
    ) -> builtins.list[Match]:
        """Search files and states of all checkpoints for a text: from which checkpoint to which they contain it, and
        who added and removed it. The path of a state is `(state) NAME`.

        `in_folder` says whether the folder has it now. Includes safety checkpoints, but not binary files; what only a
        safety checkpoint lacks was not gone. Returns at most `limit` matches, sorted by path. `found` is given each as
        it appears: where it ends is not known yet. If the store changes meanwhile, all of it begins again.
        """
        from holdfast.workspace.pathspec import as_text, open_scope
        from holdfast.workspace.search import Searcher, SearchPattern

        limit = check_count(limit, "limit")
        needle, chosen = SearchPattern(text, regex=regex, ignore_case=ignore_case), as_text(paths)
        open_scope(chosen, self.path)  # Refused now, whatever the store has

        def look() -> builtins.list[Match]:
            scope = open_scope(chosen, self.path, self._repository.has_path)
            searcher = Searcher(self._repository, needle, scope, limit=limit, skip_damaged=skip_damaged)
            return searcher.run(self._engine.now, progress, found)

        with self._reading():
            return self._repository.consistently(look)

    def blame(self, path: Place, ref: CheckpointRef | None = None) -> Blame:
        """Say which actor and checkpoint each line of a file came from, as it is now or in a checkpoint.

        A binary file counts as one line. NotFound if there is no such file.
        """
        from holdfast.workspace.blame import Blamer
        from holdfast.workspace.pathspec import inside

        name = inside(check_path(path, "path"), self.path)

        def look() -> Blame:
            with self._repository.catalog.kept_open():
                blamer = Blamer(self._repository)
                if ref is None:
                    return blamer.blame_now(name, os.fspath(self.path))
                return blamer.blame(name, self._repository.find(ref))

        with self._reading():
            return self._repository.consistently(look)

    def why(self, path: Place) -> Why:
        """Say whether a save now would include a path, and which rule decides. Reads nothing but ignore files."""
        from holdfast.workspace.why import why

        with self._reading():
            return why(check_path(path, "the path"), self._repository, self._engine.scanner)

    def beginning(self, agent: str | None = None, *, whole_session: bool = False) -> Checkpoint:
        """Get the checkpoint before the latest turn, or session, of an agent (None: the one that saved last).

        For `restore(…, keep_mine=True)`. Without a turn in the metadata, the one before its session; without a session
        either, the one before its latest checkpoints in a row. NotFound if the folder comes from none of them.
        """
        from holdfast.workspace.stored.attribution import beginning

        def look() -> Checkpoint:
            with self._repository.catalog.kept_open():
                return beginning(self._repository, agent, whole_session=whole_session)

        check_optional_text(agent, "agent")
        with self._reading():
            return self._repository.consistently(look)

    # going back

    def preview(
        self,
        ref: CheckpointRef,
        paths: Paths | None = None,
        *,
        keep_new: bool = False,
        keep_mine: bool = False,
        agent: str | None = None,
        unsaved_by: str | None = None,
    ) -> Plan:
        """Compute what `restore` would do. Pass the plan to `restore`, which then does exactly that or raises."""
        from holdfast.workspace.pathspec import as_text
        from holdfast.workspace.requests import RestoreRequest

        chosen = as_text(paths)

        def look() -> Plan:
            request = RestoreRequest(
                "restore",
                self._repository.find(ref),
                chosen,
                keep_new=keep_new,
                keep_mine=keep_mine,
                agent=agent,
                unsaved_by=unsaved_by,
            )
            if not self._is_missing:
                return self._with_branches(self._engine.restorer.preview(request), request.target)
            with self._engine_of_nothing() as engine:
                return engine.restorer.preview(request)

        with self._reading():
            return self._repository.consistently(look)

    def preview_turn(self, turn: Turn, *, agent: str | None = None, unsaved_by: str | None = None) -> Plan:
        """Compute what `undo_turn` would do. Pass the plan to `undo_turn`, which then does exactly that or raises."""
        with self._reading():
            return self._repository.consistently(
                lambda: self._engine.restorer.preview(self._turn_request(turn, agent, unsaved_by))
            )

    def undo_turn(
        self,
        turn: Turn,
        plan: Plan | None = None,
        *,
        agent: str | None = None,
        unsaved_by: str | None = None,
        touch: bool = False,
        state: Mapping[str, JSON] | None = None,
        progress: Progress | None = None,
    ) -> Restored:
        """Undo what was done in one turn, of `turn()`, and nothing else: what the user, other agents and other turns
        changed stays, also in the same files. Changes that overlap are left as they are and listed in `conflicts`.

        It is a restore with `keep_mine`: what is there is saved first (P1), and `undo` reverses it. `agent` may be a
        sub-agent, whose part of the turn is meant then. `plan`, `touch`, `state` and `unsaved_by` are as in `restore`.
        """
        with self._writing():
            if plan is not None:
                agent, unsaved_by = agent or plan.agent, unsaved_by or plan.unsaved_by
            request = self._turn_request(turn, agent, unsaved_by)
            saved = None if state is None else dict(state)
            request = request.replace(touch_ns=self._touch_ns(touch), state=saved, progress=progress)
            return self._restore(request, plan=plan)

    def _turn_request(self, turn: Turn, agent: str | None, unsaved_by: str | None) -> RestoreRequest:
        from holdfast.model import TurnRef
        from holdfast.workspace.requests import RestoreRequest
        from holdfast.workspace.stored.attribution import turn_in_trail

        if (key := turn.key) is None:
            raise Refused("a save of the user is not a turn of an agent", hint="Pass a turn of `turn()`.")
        found = turn_in_trail(self._repository, None, key)
        if found is None:
            raise NotFound(f"nothing is left of turn {turn.number or key.turn}", remedy=Remedy("list"))
        ref = TurnRef(key.agent, key.session, key.turn, turn.number, turn.prompt)
        return RestoreRequest("restore", found.since, keep_mine=True, agent=agent, unsaved_by=unsaved_by, turn=ref)

    @property
    def _is_missing(self) -> bool:
        return self._missing_ok and not os.path.lexists(self.path)

    @contextlib.contextmanager
    def _engine_of_nothing(self) -> Iterator[Engine]:
        """An engine for an empty folder, in place of the one that is missing."""
        import tempfile  # start-up cost, for a folder that was deleted

        from holdfast.workspace.engine import Engine

        with tempfile.TemporaryDirectory() as empty:
            place = Path(os.path.realpath(empty))
            yield Engine(place, self._repository, self._clock, **self._engine_options)

    def _with_branches(self, plan: Plan, target: Checkpoint) -> Plan:
        """Add the user's git branch then and now, if they differ."""
        from holdfast.scan.user_git import repository_of
        from holdfast.workspace.capture.scanner import git_head_of

        now = git_head_of(repository_of(self.path)) if target.git is not None and target.git.branch else None
        if target.git is None or now is None or now.branch == target.git.branch:
            return plan
        return plan._replace(branches=(target.git.branch, now.branch))

    def restore(
        self,
        ref: CheckpointRef,
        paths: Paths | None = None,
        plan: Plan | Callable[[Plan], object] | None = None,
        *,
        keep_new: bool = False,
        keep_mine: bool = False,
        agent: str | None = None,
        unsaved_by: str | None = None,
        skip_damaged: bool = False,
        touch: bool = False,
        state: Mapping[str, JSON] | None = None,
        progress: Progress | None = None,
    ) -> Restored:
        """Make the folder, or some paths of it, exactly as they are in a checkpoint.

        Saves what is there first, so that `undo` restores it (P1), with `state`. Removes files created since, unless
        `keep_new`. Ignored files, what the checkpoint does not cover, and repositories cloned since stay and are listed
        in `kept`. Conflict if the folder no longer matches a given `plan`. On an error everything is as it was (P3).
        `plan` may be a function: it gets the plan before anything is stored or changed, and may raise to prevent that.
        With `touch`, files whose content changes get the present time instead of the stored one, so that build tools
        which compare times build again. Ignored outputs that are newer than what was replaced are in `stale_outputs`.

        With `keep_mine`, undo only what an `agent` changed since (None: every actor but the user); everything else
        stays. Changes that overlap are left as they are and listed in `conflicts`. Unsaved changes are the user's,
        unless `unsaved_by` names another actor.
        """
        from holdfast.model import Plan
        from holdfast.workspace.pathspec import as_text
        from holdfast.workspace.requests import RestoreRequest

        if was_missing := self._is_missing:
            self.get(ref)  # NotFound, before anything is made
            durable.make_folder(self.path, mode=0o755)
        with self._writing(scans=True):
            target = self._repository.find(ref)
            agree = None if plan is None or isinstance(plan, Plan) else plan
            if isinstance(plan, Plan):
                keep_new, paths = keep_new or plan.keep_new, paths if paths is not None else plan.paths
                keep_mine, agent = keep_mine or plan.keep_mine, agent or plan.agent
                unsaved_by = unsaved_by or plan.unsaved_by
            request = RestoreRequest(
                "restore", target, as_text(paths), keep_new=keep_new, skip_damaged=skip_damaged, keep_mine=keep_mine,
                agent=agent, unsaved_by=unsaved_by, touch_ns=self._touch_ns(touch),
                state=None if state is None else dict(state), progress=progress,
            )  # fmt: skip
            if agree is not None:
                return self._restore(request, plan=lambda made: agree(self._with_branches(made, target)))
            return self._restore(request, plan=None if was_missing else plan)  # a plan is of another folder then

    def preview_revert(self, changes: Changes, hunks: Iterable[Hunk | str] | None = None) -> Plan:
        """Compute what `revert` would do. Pass the plan to `revert`, which then does exactly that or raises."""
        wanted = _hunk_ids(changes, hunks)

        def look() -> Plan:
            return self._engine.restorer.preview(self._revert_request(changes, wanted))

        with self._reading():
            return self._repository.consistently(look)

    def revert(
        self,
        changes: Changes,
        hunks: Iterable[Hunk | str] | None = None,
        plan: Plan | None = None,
        *,
        touch: bool = False,
        state: Mapping[str, JSON] | None = None,
        progress: Progress | None = None,
    ) -> Restored:
        """Take back some of what changed, as `changes` returned it; everything else in the folder stays.

        `hunks` are hunks of it or their ids; None stands for all of them. Conflict, and nothing is done, if one cannot
        be taken back: it is not there any more, or the same lines were changed since. Otherwise this is a restore, with
        a safety checkpoint (P1), and `undo` reverses it. `plan`, `touch` and `state` are as in `restore`.
        """
        wanted = _hunk_ids(changes, hunks)
        with self._writing():
            request = self._revert_request(changes, wanted).replace(
                touch_ns=self._touch_ns(touch),
                state=None if state is None else dict(state),
                progress=progress,
            )
            return self._restore(request, plan=plan)

    def _revert_request(self, changes: Changes, hunks: tuple[str, ...]) -> RestoreRequest:
        from holdfast.workspace.requests import Chosen, RestoreRequest

        until = None if changes.to_id is None else self._repository.find(changes.to_id)
        return RestoreRequest("restore", self._repository.find(changes.from_id), chosen=Chosen(until, hunks))

    def undo(
        self,
        plan: Plan | None = None,
        *,
        touch: bool = False,
        state: Mapping[str, JSON] | None = None,
        progress: Progress | None = None,
    ) -> Restored:
        """Undo the last restore that was not undone yet. NotFound if there is none.

        Saves what is there first, with `state` (P1). Conflict if the folder no longer matches a given `plan`, of
        `preview_undo`. `touch` is as in `restore`.
        """
        with self._writing(scans=True):
            request = self._engine.restorer.undo_request()
            saved = None if state is None else dict(state)
            request = request.replace(state=saved, touch_ns=self._touch_ns(touch), progress=progress)
            return self._restore(request, plan=plan)

    def redo(self, plan: Plan | None = None, *, touch: bool = False, progress: Progress | None = None) -> Restored:
        """Redo what the last undo reverted. NotFound if there is none since the last restore."""
        with self._writing(scans=True):
            request = self._engine.restorer.redo_request()
            return self._restore(request.replace(touch_ns=self._touch_ns(touch), progress=progress), plan=plan)

    def preview_undo(self) -> Plan:
        """Compute what `undo` would do. NotFound if there is nothing to undo."""
        return self._preview_turn(lambda: self._engine.restorer.undo_request())

    def preview_redo(self) -> Plan:
        """Compute what `redo` would do. NotFound if there is nothing to redo."""
        return self._preview_turn(lambda: self._engine.restorer.redo_request())

    def _preview_turn(self, request: Callable[[], RestoreRequest]) -> Plan:
        with self._reading():
            return self._repository.consistently(lambda: self._engine.restorer.preview(request()))

    def next_undo(self) -> Checkpoint | None:
        """Get the safety checkpoint that `undo` would restore; None if there is nothing to undo."""
        with self._reading():
            return self._repository.undo_stack().next_undo

    def count_restores(self) -> int:
        """Count the restores that can be undone, and the undos that can be redone."""
        with self._reading():
            return sum(map(len, self._repository.undo_stack()))

    def next_redo(self) -> Checkpoint | None:
        """Get the safety checkpoint that `redo` would restore; None if there is nothing to redo."""
        with self._reading():
            return self._repository.undo_stack().next_redo

    def saves_after(self, checkpoint: Checkpoint) -> int:
        """Count the checkpoints that were saved after another, without those saved before restores."""
        with self._reading():
            return self._repository.catalog.saves(after=checkpoint.id)

    def export(
        self,
        ref: CheckpointRef,
        directory: Place,
        paths: Paths | None = None,
        *,
        skip_damaged: bool = False,
        progress: Progress | None = None,
    ) -> Exported:
        """Write a checkpoint's files, or some of them, exactly as they were, into a new or empty folder elsewhere.

        All of it is there, or nothing (P3). What could not be written is in `failed`, what the checkpoint does not
        cover in `missing`.
        """
        from holdfast.workspace.export import Exporter
        from holdfast.workspace.pathspec import as_text

        chosen = as_text(paths)

        def look() -> Exported:
            exporter = Exporter(self._repository, self.path)
            target = self._repository.find(ref)
            return exporter.export(target, directory, chosen, skip_damaged=skip_damaged, progress=progress)

        with self._reading():
            return self._repository.consistently(look)

    def guard(
        self,
        message: str = "",
        *,
        state: Mapping[str, JSON] | None = None,
        session: str | None = None,
        actor: str | None = None,
        step: int | None = None,
    ) -> Guard:
        """Save now, and restore if the block fails: `with ws.guard("risky step"):`, or as a decorator.

        The error is raised in any case, with a note of what was restored. `with … as` gives the checkpoint.
        """
        from holdfast.workspace.guard import Guard
        from holdfast.workspace.requests import SaveRequest

        return Guard(self, SaveRequest(message, state=state, session=session, actor=actor, step=step))

    def bisect(
        self,
        good: CheckpointRef,
        bad: CheckpointRef,
        test: Test,
        *,
        tell: Tell | None = None,
        scratch: Place | None = None,
        in_place: bool = False,
        begun: Callable[[Checkpoint], None] | None = None,
    ) -> Bisected:
        """Find the first checkpoint at which a test fails, by binary search.

        `test` is called with a folder that contains the files of a checkpoint, and the checkpoint; it returns whether
        that is good, or None to skip it. `tell` is called with each result. Refused if `good` is not good or `bad` is
        not bad. Installed dependencies, which checkpoints do not contain, are linked into the folder: `linked` of the
        result names them, `changed` those that the test wrote to. With `in_place`, each checkpoint is restored into the
        workspace itself, which is saved first and afterwards is as it was; `begun` is called with that checkpoint, for
        after a kill only it has the folder as it was (see `interrupted_bisect`).
        """
        from holdfast.workspace.bisect import bisect

        above = None if scratch is None else Path(check_place(scratch, "the scratch folder"))
        return bisect(
            self,
            good,
            bad,
            test,
            tell=tell,
            scratch=above,
            in_place=in_place,
            begun=begun,
            uncovered=lambda: self._engine.now().uncovered,
        )

    @property
    def interrupted_bisect(self) -> Checkpoint | None:
        """The checkpoint that was saved before a bisection in place, if a kill ended that and the folder has been
        neither restored to it nor saved since: the folder is at an older state."""
        note = self._repository.own / BISECT_NOTE
        if not note.exists():
            return None
        with self._reading():
            before = note.read_text("ascii", "replace")
            catalog, head = self._repository.catalog, self._repository.head()
            if before in self._repository.holds.held() or head is None or head.id == before:
                return None  # it is running, or the folder is back
            newer = catalog.newest(limit=1, after=before)
            row = None if newer else catalog.by_id(before)
            return self._repository.checkpoint(row) if row else None

    def _touch_ns(self, touch: bool) -> int | None:
        return self._engine.saver.now_ns() if touch else None

    def _restore(self, request: RestoreRequest, *, plan: Plan | Callable[[Plan], object] | None = None) -> Restored:
        """Restore; if it is interrupted in the middle of a step, recover at once from the journal. Needs the lock.

        If that is interrupted too, the next call recovers.
        """
        try:
            return self._engine.restorer.restore(request, plan=plan)
        except HoldfastError:
            raise
        except BaseException:
            if self._engine.recoverer.is_interrupted:
                with contextlib.suppress(HoldfastError, OSError):
                    self.recovered = self._engine.recoverer.recover()
            raise

    # whether checkpoints are good

    def check(self, ref: CheckpointRef = "latest", *, output: Callable[[bytes], None] | None = None) -> CheckResult:
        """Run the check command on a checkpoint, in a scratch copy, and mark the checkpoint green or red.

        NotFound without a command, Refused if a person has not allowed it (`allow_check`), Conflict if a check is
        running. `output` gets what the command prints. If the command cannot be run, or exits with 125, `passed` is
        None and nothing is marked.
        """
        return self._checks().run(self.get(ref), self._uncovered_now, output)

    def run_wanted_checks(self) -> None:
        """Run the checks that `want_check` asked for; of several, the newest. Never raises for one that fails."""
        if self.check_command is not None:
            self._checks().run_wanted(self._uncovered_now)

    def want_check(self) -> bool:
        """Ask for a check of the folder's checkpoint, which `start_wanted_check` begins. False if there is no command,
        it is not allowed, or the checkpoint has been checked."""
        from holdfast.workspace import check

        head = self.head() if self.check_command is not None else None
        if head is None or self.check_command is None or head.operation is not None:
            return False
        known = head.metadata.get(check.CHECK)
        if isinstance(known, dict) and known.get("command") == self.check_command:
            return False
        return check.want(self._repository.own, head.id, self.check_command)

    def start_wanted_check(self) -> None:
        """Run what `want_check` asked for in a process of its own: nobody waits for it."""
        from holdfast.workspace import background, check

        if self.check_command is not None and check.is_wanted(self._repository.own):
            told = {"path": os.fspath(self.path), "store": os.fspath(self.store), **self._reopening}
            background.start("check", told, self._environ)

    def allow_check(self, command: str | None) -> None:
        """Allow a command to be run by `check`, in this workspace; None: none. Only a person should decide this: it
        runs code of the folder, without asking again, until its text is another."""
        from holdfast.workspace import check

        with self._reading():
            check.allow(self._repository.own, check_optional_text(command, "the command"))

    def check_status(self) -> CheckStatus | None:
        """Say what is known about checks; None without a command."""
        if self.check_command is None:
            return None
        from holdfast.workspace import check  # start-up cost: few have a command

        with self._reading():
            own, row = self._repository.own, self._repository.catalog.last_green()
            return check.CheckStatus(
                self.check_command,
                check.is_allowed(own, self.check_command),
                check.is_running(own),
                check.read_last(own),
                self._repository.checkpoint(row) if row else None,
            )

    def mark(self, ref: CheckpointRef, key: str, value: JSON) -> Checkpoint:
        """Set one key in the metadata of a checkpoint. Its id, number and time stay; its commit changes."""
        from holdfast.workspace.requests import as_json
        from holdfast.workspace.upkeep.prune import Upkeep

        value = as_json(value, key)
        with self._writing():
            found = self._repository.find(ref)
            return Upkeep(self._repository).relabel(
                found, metadata={**found.metadata, check_text(key, "the key"): value}
            )

    def _checks(self) -> Checks:
        from holdfast.workspace.check import Checks

        if self.check_command is None:
            raise NotFound("no check command is configured", remedy=Remedy("configure_check"))
        return Checks(self, self.check_command, self._check_timeout_s, {**os.environ, **self._environ})

    def _uncovered_now(self) -> set[str]:
        return set(self._engine.now().uncovered)

    # upkeep of the store

    def verify(self, *, progress: Progress | None = None) -> VerifyReport:
        """Read every byte of the store, and report what is damaged and which checkpoints that affects."""
        from holdfast.workspace.upkeep.verify import Verifier

        with self._reading():
            return Verifier(self._repository, progress).run()

    def prune(
        self, policy: Policy, dry_run: bool = True, *, lazily: bool = False, plan: Pruned | None = None
    ) -> Pruned:
        """Delete the checkpoints that a policy does not keep, and free their disk space. A dry run only plans.

        Never deleted: pinned and named checkpoints, the current and the latest, and what an undo, a redo or an
        interrupted restore needs (P1). With `plan`, nothing that is not in it. `lazily` frees the disk space in a later
        call, once enough checkpoints are deleted. Damaged if it is unknown what the other checkpoints need.
        """
        from holdfast.workspace.upkeep.prune import Upkeep

        upkeep, now = Upkeep(self._repository), self._clock()
        if dry_run:
            with self._reading():
                return self._repository.consistently(lambda: upkeep.plan(policy, now))
        with self._writing():
            only = None if plan is None else {checkpoint.id for checkpoint in plan.removed}
            return upkeep.prune(policy, now, lazily=lazily, only=only)

    def thin(self, policy: Policy | None = None, *, keep: Policy | None = None) -> Thinned:
        """Delete automatic checkpoints that a policy does not keep (None: `retention.AUTOMATIC`), and free their disk
        space, in short steps between which others can write.

        Never deleted: what nobody saved automatically, what `prune` never deletes, what undoing the last turn needs,
        and what `keep` keeps. Conflict if another process does the same.
        """
        from holdfast.retention import AUTOMATIC
        from holdfast.workspace.upkeep.thinning import Thinner

        with os_errors(self.store, outcome="Some checkpoints may be deleted already."):
            self._check_is_there()
            return Thinner(self._repository, self._writing, self._clock).run(policy or AUTOMATIC, keep)

    def compact(self) -> Compacted:
        """Make the store as small as possible: the git program, if it is installed, computes deltas. This is slow."""
        from holdfast.scan.user_git import git_program
        from holdfast.workspace.upkeep.prune import Upkeep

        git = git_program(self._environ)
        with self._writing():
            return Upkeep(self._repository).compact(git)

    def merge(self) -> None:
        """Merge all packs into one now, and free the space of deleted checkpoints."""
        from holdfast.workspace.upkeep.prune import Upkeep

        with self._writing():
            Upkeep(self._repository).merge()

    def pin(self, ref: CheckpointRef, pinned: bool = True) -> Checkpoint:
        """Pin a checkpoint, so that it is never pruned, or unpin it. Its id, number and time stay."""
        from holdfast.workspace.upkeep.prune import Upkeep

        check_flag(pinned, "pinned")
        with self._writing():
            return Upkeep(self._repository).pin(self._repository.find(ref), pinned=pinned)

    def usage(self, *, paths: int | None = 20) -> Usage:
        """Measure disk usage: of the files of the store, by checkpoint, and by path (the `paths` largest).

        Reads every folder of every checkpoint once: seconds for thousands of checkpoints.
        """
        from holdfast.workspace.upkeep.usage import measure

        paths = check_limit(paths, "paths")
        with self._reading():
            return self._repository.consistently(lambda: measure(self._repository, paths=paths))

    @overload
    def purge(
        self,
        *paths: Place,
        dry_run: Literal[True],
        lines: bool = False,
        secrets: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> PurgePlan: ...

    @overload
    def purge(
        self,
        *paths: Place,
        dry_run: Literal[False] = False,
        lines: bool = False,
        secrets: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> Purged: ...

    def purge(
        self,
        *paths: Place,
        dry_run: bool = False,
        lines: bool = False,
        secrets: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> PurgePlan | Purged:
        """Remove the content of files, folders or patterns from every checkpoint, for good; the folder does not change.

        The checkpoints keep their ids and record what was removed. With `dry_run`, only plan. NotFound if no checkpoint
        has it. In states, messages and metadata, copies of the whole content or of a word that looks like a key are
        redacted; with `lines`, copies of whole lines too. `secrets` are ids of what `secrets()` lists: their files, and
        the secrets themselves in states, messages and metadata. The next call that writes continues an interrupted
        purge. Conflict if a ref that somebody else made in the store needs the content.
        """
        from holdfast.workspace.pathspec import as_text, literal
        from holdfast.workspace.secrets import SecretScan
        from holdfast.workspace.stored.turn_log import TurnLog

        chosen = as_text(paths) or []

        def selected() -> tuple[builtins.list[str], builtins.list[Position]]:
            files, places = SecretScan(self._repository).places(secrets) if secrets else ([], [])
            return [*chosen, *map(literal, files)], places

        if dry_run:

            def look() -> PurgePlan:
                every, places = selected()
                return self._purger().plan(every, lines=lines, secrets=places, progress=progress)

            with self._reading():
                return self._repository.consistently(look)
        with self._writing():
            every, places = selected()
            TurnLog(self._repository.own).forget_prompts()
            done = self._purger().purge(every, lines=lines, secrets=places, progress=progress)
            self.purge_error = None
            SecretScan(self._repository).forget_purged()
            return done

    def secrets(self, *, every: bool = False) -> SecretReport:
        """List the keys and passwords that checkpoints contain; never the secrets themselves. Scans what is pending.

        `every` scans all checkpoints again. `purge(secrets=[id])` removes one.
        """
        from holdfast.workspace.secrets import SecretScan

        with self._writing():
            return SecretScan(self._repository).scan(self._engine.scanner.tracked_files(), every=every)

    def defer_scans(self) -> None:
        """Have saves leave the scan for secrets to `scan_pending`; for a process that calls it after each save."""
        self._engine.saver.unscanned = []

    def scan_pending(self, max_bytes: int) -> None:
        """Scan some of what is pending, unless another process is writing: nobody waits for this."""
        mine = (self._engine_made and self._engine_made.unscanned) or []
        if not self._scans_secrets or not (mine or self._repository.knows_secrets()):
            return
        from holdfast.workspace.secrets import SecretScan, scan_quietly  # start-up cost: most often nothing is pending

        scan = SecretScan(self._repository)
        if not (mine or scan.report().pending):
            return
        if not self._repository.lock.acquire(wait=False):
            return
        try:
            also = [mine.pop(0) for _ in range(len(mine))]
            tracked = self._engine.scanner.tracked_files()
            scan_quietly(lambda: scan.scan(tracked, max_bytes=max_bytes, also=also))
        finally:
            self._repository.lock.release()

    def kind_rules(self) -> dict[str, Policy | None]:
        """Get the retention policy of each type of checkpoint in this store; None keeps a type for ever."""
        from holdfast.workspace.upkeep.type_policies import read_kinds

        return read_kinds(self._repository.own)

    def set_kind_rules(self, kinds: Mapping[str, Policy | None]) -> None:
        """Set the retention policy of each type of checkpoint, for prunes whose own policy has no rule for the type."""
        from holdfast.workspace.upkeep.type_policies import write_kinds

        with self._writing():
            write_kinds(self._repository.own, kinds)

    @contextlib.contextmanager
    def hold(self, ref: CheckpointRef) -> Iterator[Checkpoint]:
        """Protect a checkpoint from being pruned by any process: `with ws.hold(ref):`. `delete` still deletes it."""
        with contextlib.ExitStack() as held:
            with self._writing():  # not while a prune is between planning and deleting: it would not see the hold
                checkpoint = self._repository.find(ref)
                held.enter_context(self._repository.holds.hold(checkpoint.id))
            yield checkpoint

    # watching

    def watch(self) -> Watching:
        """Let the kernel report changes from now on, so that a save costs what changed, not what there is (P8).

        For processes that save more than once. It is only a hint: if it is in doubt, a save scans everything.
        """
        return self._engine.scanner.watch()

    def share_watch(self, other: Workspace) -> None:
        """Use the watch of another object for the same folder and store, which goes on watching after this one is
        closed. Nothing happens if they scan differently."""
        mine, its = self._engine.scanner, other._engine.scanner
        if (other.path, other.store, its.limits) == (self.path, self.store, mine.limits):
            mine.watching, mine.is_watch_shared = its.watch(), True

    def close(self) -> None:
        """Stop watching and close all files of the store. The workspace stays usable, and reopens what it needs."""
        scanner = self._engine_made and self._engine_made.scanner
        if scanner and scanner.watching and not scanner.is_watch_shared:
            scanner.watching.close()
        self._repository.close()

    # opening and locking

    @property
    def _engine(self) -> Engine:
        with self._engine_lock:
            if self._engine_made is None:
                from holdfast.workspace.engine import Engine  # start-up cost: reading checkpoints does not need it

                self._engine_made = Engine(self.path, self._repository, self._clock, **self._engine_options)
                self._engine_made.scanner.early = self._early_sweep
            return self._engine_made

    def _find_moved(self, environ: Mapping[str, str]) -> None:
        """Use the store that the folder had before it was moved, if there is one."""
        from holdfast.workspace.moved_folder import find_moved  # start-up cost: most folders have a store

        if moved := find_moved(self.path, environ):
            self.moved_from, self.store = moved

    def _open(self, *, create: bool) -> None:
        if self._repository.exists:
            store_paths.check_is_store(self.store)
        else:
            if not create:
                raise NotFound(f"{self.path} has no checkpoints yet", remedy=Remedy("save_first"))
            self._create()
        store_paths.check_owner(self.store, self.path)
        self._repository.sync()
        if Journal(self._repository.own).exists and self._repository.lock.acquire(wait=False):
            try:
                with os_errors(self.store, outcome=_UNCHANGED):
                    self.recovered = self._engine.recoverer.recover()
            except HoldfastError as error:
                self.recovery_error = error  # reading still works; the next write raises it
            finally:
                self._repository.lock.release()

    def _create(self) -> None:
        store_paths.check_room(self.store)
        durable.make_folder(self._repository.own)
        with self._repository.lock:
            if not self._repository.exists:
                store_paths.check_owner(self.store, self.path)
                store_paths.write_owner(self.store, self.path, self._environ)
                for folder in (self.store, *self.store.parents[:3]):
                    with contextlib.suppress(PermissionError):  # its maker may have died before this
                        durable.sync_folder(folder)
                self._repository.objects.create()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        with os_errors(self.store, outcome=_UNCHANGED):
            self._check_is_there()
            self._repository.sync()
            yield

    def _check_is_there(self) -> None:
        if not self._repository.exists:
            raise Unavailable(f"the store {self.store} is gone", hint="Open the workspace again to create another.")

    @contextlib.contextmanager
    def _writing(self, *, scans: bool = False) -> Iterator[None]:
        """Hold the store's lock; first remove what dead writers left and finish what they interrupted (P3, P9).

        `scans`: the call begins with a scan.
        """
        with os_errors(self.store, outcome=_UNCHANGED):
            self._check_is_there()
            with self._repository.lock, self._sweeping_early() if scans else contextlib.nullcontext():
                store_paths.check_owner(self.store, self.path)
                self._repository.objects.refresh()
                self._repository.sweep()
                with self._repository.catalog.kept_open():
                    self._repository.sync()
                    if Journal(self._repository.own).exists:
                        self._drop_early_sweep()
                        self.recovered = self._engine.recoverer.recover() or self.recovered
                    # after recovery: a restore can only be finished in the folder it began in
                    store_paths.write_owner(self.store, self.path, self._environ)
                    self._resume_purge()
                    yield

    @contextlib.contextmanager
    def _sweeping_early(self) -> Iterator[None]:
        """Begin to look at the folder while what is needed for a scan is loaded. Needs the lock: before it, the folder
        may be in the middle of the restore of another process."""
        scanner = self._engine_made.scanner if self._engine_made is not None else None
        if scanner is None or scanner.watching is None:
            if self._early_sweep is None:
                from holdfast.scan.sweep import EarlySweep  # start-up cost: reading checkpoints does not need it

                cache, clock = self._repository.own / "scan.cache", self._engine_options["file_clock"]
                self._early_sweep = EarlySweep(cache, self.path, clock)
                if scanner is not None:
                    scanner.early = self._early_sweep
            self._early_sweep.begin()
        try:
            yield
        finally:
            self._drop_early_sweep()  # P2: the next call must not take it for its own

    def _drop_early_sweep(self) -> None:
        if self._early_sweep is not None:
            self._early_sweep.drop()

    def _purger(self) -> Purger:
        from holdfast.scan.user_git import git_program
        from holdfast.workspace.upkeep.purge import Purger

        return Purger(self._repository, self.path, lambda: git_program(self._environ))

    def _resume_purge(self) -> None:
        """Continue an interrupted purge; if that fails, not again in this process, since it is slow. Needs the lock."""
        if not self._repository.is_purging:
            self.purge_error = None
        elif self.purge_error is None:
            self.purge_error = self._purger().resume()


def _hunk_ids(changes: Changes, hunks: Iterable[Hunk | str] | None) -> tuple[str, ...]:
    from holdfast.model import Changes, Hunk

    if not isinstance(changes, Changes):
        raise Refused("changes is not what Workspace.changes returns", hint="Pass its result.")
    if isinstance(hunks, str | bytes):
        raise Refused("hunks is a single id, not a list", hint="Give a list of hunks, or of their ids.")
    found = [each.id if isinstance(each, Hunk) else each for each in (changes.hunks if hunks is None else hunks)]
    if not all(isinstance(each, str) for each in found):
        raise Refused("hunks contains something that is neither a hunk nor an id", hint="Pass hunks of the changes.")
    return tuple(dict.fromkeys(found))


def _now() -> datetime:
    return datetime.now(UTC)


def _in_pages(catalog: Catalog, before: str | None, filters: Mapping[str, Any]) -> Iterator[Row]:
    while rows := catalog.newest(limit=_PAGE, before=before, **filters):
        yield from rows
        before = rows[-1].id
