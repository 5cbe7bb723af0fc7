"""What every command is given: the global options, and the workspace that they mean."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast.cli import caller, render, streams
from holdfast.cli.exit_codes import Exit
from holdfast.errors import HoldfastError, NotFound, Refused
from holdfast.escaping import shell_word, without_password

if TYPE_CHECKING:
    from holdfast.location import Location, LocationKind
    from holdfast.model import Recovery
    from holdfast.project import SyncCheckpointManager
    from holdfast.workspace import Workspace


class App:
    """The global options of one run of the program. No dataclass: it would slow down the start of a command."""

    def __init__(
        self,
        directory: str | None = None,
        store: str | None = None,
        *,
        allow_home: bool = False,
        trust_store: bool = False,
        json: bool = False,
    ) -> None:
        self.directory = directory
        self.url: str | None = None
        """The location that was named after the command, if that is a URL."""
        self.store = store
        self._options: dict[str, Any] = {"allow_home": allow_home, "trust_store": trust_store}
        self.json = json
        self._workspace: Workspace | None = None
        self._told: Recovery | None = None

    def open(self, *, create: bool = False, exclude: Sequence[str] = (), scans: bool = True) -> Workspace:
        """Open the workspace that the options name, or the nearest one; raise NotFound where there is none.

        `scans=False` is for a command that does not look at files: the configuration is not decoded, which takes
        longer than `log` does.
        """
        folder = self.folder()
        attempt = partial(self._at, exclude=exclude, strict=create, scans=scans)
        if self.directory:
            found = _existing(folder, attempt)
        else:
            found = nearest(folder, attempt, home=_home(), any_owner=self.store is not None)
        if found is None:
            if not create:
                self._check_folder(folder)
                first = f"Make the first one with `{self.typed('save')}`."
                if around := self._around(folder, attempt):
                    first = f"-C names the workspace itself; the one around it: holdfast -C {around} …"
                raise NotFound(f"{folder} has no checkpoints yet", hint=" ".join([first, *self._moved_from(folder)]))
            found = self._made(self._root(folder), exclude=exclude)
            streams.note(render.escape(f"Created a store for {found.path}"))
        if scans:
            caller.opened(found)
        return self._opened(found)

    def kind(self) -> LocationKind:
        """The kind of the location that was named, or of the current folder."""
        from holdfast.location import kind_of  # start-up cost: who needs no location does not pay for it

        address = self.url or self.directory or ""
        return kind_of(address if "://" in address or self.url else os.fspath(self.folder()))

    @contextmanager
    def location(self, options: Mapping[str, Any], *, scans: bool = True) -> Iterator[Location]:
        """Open the location that was named, or the nearest folder with a store; `scans` is as in `open`."""
        kind = self.kind()
        found: Location
        if kind.name == "workspace":
            from holdfast.workspace.location import WorkspaceLocation

            workspace = self.open(scans=scans)
            given = dict(options)
            if paths := given.get("paths"):
                given["paths"] = self.paths(workspace, paths)
            yield WorkspaceLocation(workspace, given)
            return
        address = self.url or self.directory or ""
        loaded = kind.load()
        streams.tell_waiting()
        environ = {each.name: os.environ.get(each.environ) for each in loaded.options if each.environ}
        given = {name: value for name, value in environ.items() if value} | dict(options)
        found = loaded(address if "://" in address or self.url else os.fspath(self.folder()), given)
        try:
            yield found
        finally:
            found.close()

    def open_here(self) -> tuple[Workspace, bool]:
        """Open or create the store of exactly the named folder, or of the repository that contains the current one,
        and say whether it is new."""
        folder = self._root(self.folder())
        found = _existing(folder, partial(self._at, strict=True))
        return self._opened(found or self._made(folder)), found is None

    def _made(self, folder: Path, *, exclude: Sequence[str] = ()) -> Workspace:
        """Make a store; say where older checkpoints are, if the folder seems to have been moved."""
        before = self._moved_from(folder, likely=True)
        workspace = self._at(folder, create=True, exclude=exclude, strict=True)
        if folder != self.folder():
            alone = f"for this folder alone: {App('.').typed('init')}"
            streams.note(render.escape(f"{workspace.path} is the git repository that this folder is in; {alone}"))
        for line in before:
            streams.note(render.escape(f"This store is new. {line}"))
        return workspace

    def _root(self, folder: Path) -> Path:
        """The folder to make a store for: the named one, else the git repository that contains the current one, as a
        hook does; below the home folder."""
        if self.directory or self.store:
            return folder
        from holdfast.workspace.store_paths import project_root, real_workspace

        home = _home()
        root = project_root(Path(os.path.realpath(folder)), home=home, environ=os.environ)
        if root is None or os.path.realpath(folder) == os.fspath(root):
            return folder
        try:
            return real_workspace(root, home=home, allow_home=False)
        except Refused:  # a repository at the top of a disk, or around the home folder: not a project
            return folder

    def project_folder(self) -> Path:
        """The folder whose settings of agents are meant, as a real path: the named one, else the nearest with a store
        or a git repository, else the current one."""
        return Path(os.path.realpath(self._root(self.folder())))

    def _moved_from(self, folder: Path, *, likely: bool = False) -> list[str]:
        """A sentence that names the old store, if the folder seems to have been moved; with `likely`, only if much
        speaks for it."""
        from holdfast.workspace.store_paths import left_behind

        found = {} if self.store else left_behind(Path(os.path.realpath(folder)), os.environ, likely=likely)
        likeliest = list(found.items())[:1]
        return [f"If it was {was} before: {self.typed('--store', str(store), 'log')}" for was, store in likeliest]

    def _at(
        self,
        folder: Path,
        *,
        create: bool = False,
        exclude: Sequence[str] = (),
        strict: bool = False,
        scans: bool = True,
    ) -> Workspace:
        """Open a folder with its configuration. An invalid one is an error only with `strict`, for what makes
        checkpoints: it must not keep anybody from going back."""
        from holdfast.configuration import find_configuration
        from holdfast.validation import check_path
        from holdfast.workspace import Workspace  # the engine is loaded when a command really opens a store

        wrong: HoldfastError | None = None
        options: dict[str, Any] = {"exclude_patterns": []}
        try:
            if find_configuration(Path(check_path(folder, "the workspace"))) is not None and scans:
                from holdfast.workspace.config import read_settings  # start-up cost, only with a configuration

                settings = read_settings(folder)
                options = settings.options()
                caller.wants_helper = caller.wants_helper or settings.helper
        except HoldfastError as error:
            wrong = error
            if create:
                raise
        options["exclude_patterns"] = [*options["exclude_patterns"], *exclude]
        options["on_unknown"] = "tagged"  # states are only shown
        streams.tell_waiting()
        missing_ok = bool(self.directory) and not (create or strict)
        workspace = Workspace(
            folder, store=self.store, create=create, missing_ok=missing_ok, **self._options, **options
        )
        if wrong is not None and strict:
            raise wrong
        if wrong is not None:
            from holdfast.cli.remedies import sentence  # start-up cost, for errors only

            streams.note(render.escape(f"The configuration is not used: {sentence(wrong)}"))
        return workspace

    def workspace_options(self) -> dict[str, Any]:
        """The options of a workspace that is not the nearest one, but named by a command."""
        return {"store": self.store, **self._options}

    def project(self) -> SyncCheckpointManager:
        """The project of the workspace, which can fork."""
        from holdfast.project import SyncCheckpointManager

        workspace = self.open()
        return SyncCheckpointManager(workspace.path, store=workspace.store, on_unknown="tagged", **self._options)

    def configured(self) -> Path:
        """The folder whose configuration counts: that of the nearest workspace, else the named or current one."""
        from holdfast.workspace import Workspace

        folder = self.folder()

        def attempt(place: Path) -> Workspace:
            return Workspace(place, store=self.store, create=False, **self._options)

        any_owner = self.store is not None
        opened = (
            _existing(folder, attempt)
            if self.directory
            else nearest(folder, attempt, home=_home(), any_owner=any_owner)
        )
        return self._root(folder) if opened is None else self._opened(opened).path

    def check_kind(self) -> None:
        """Refused if `-C` does not name a folder; the message says what it is, and which command is for it."""
        if self.directory and "://" in self.directory:
            from holdfast.cli import kinds  # start-up cost, for errors only

            if known := kinds.of_word(self.directory):
                raise Refused(f"{known[0]}, and this command is for folders", hint=f"{known[1]}.")

    def _check_folder(self, folder: Path) -> None:
        """NotFound, as above, for a folder without a store that is something else."""
        from holdfast.cli import kinds  # as above

        if known := kinds.of_folder(Path(os.path.realpath(folder))):
            raise NotFound(f"{known[0]}, and has no checkpoints of its files", hint=f"{known[1]}.")

    def _opened(self, workspace: Workspace) -> Workspace:
        self._workspace = workspace
        if workspace.moved_from:
            streams.note(render.escape(f"This folder was {workspace.moved_from} before; its checkpoints continue."))
        self.tell_recovered()
        if before := workspace.interrupted_bisect:
            from holdfast.model.documents import short  # start-up cost, only then

            again = self.typed("restore", short(before.id))
            streams.note(f"A bisect --in-place was killed and left an old state; bring the folder back with: {again}")
        return workspace

    def folder(self) -> Path:
        """Return the folder that was named, or the current one. Refused if what was named is not a folder."""
        self.check_kind()
        if self.directory and "/" not in self.directory and not os.path.lexists(self.directory):
            from holdfast.workspace.stores import find_gone  # start-up cost, for a folder that is not there

            self.directory = find_gone(self.directory, os.environ) or self.directory
        try:
            return Path(self.directory or os.getcwd())
        except FileNotFoundError:
            raise NotFound("the current folder no longer exists", hint="Go to one that does, or pass -C.") from None

    def paths(self, workspace: Workspace, given: Sequence[str]) -> list[str] | None:
        """Return pathspecs as the library takes them. Without -C they are meant from the current folder."""
        if not given:
            return None
        if self.directory:
            return list(given)
        from holdfast.workspace.pathspec import from_folder  # start-up cost, only with paths

        here = Path(os.getcwd()).relative_to(workspace.path).as_posix()
        return [from_folder(path, here) for path in given]

    def path(self, workspace: Workspace, given: str) -> str:
        """Return one path, which is no pattern, as the library takes it."""
        if self.directory or not given or os.path.isabs(given) or given.startswith("~/"):
            return given  # an empty one is for the library to refuse
        here = Path(os.getcwd()).relative_to(workspace.path).as_posix()
        return posixpath.normpath(posixpath.join(here, given))

    def document(self, value: dict[str, Any]) -> None:
        """Print the one JSON document of this run."""
        from holdfast.model import documents  # with the nouns, which `--version` and `--help` do not need

        recovered = self._workspace.recovered if self._workspace else None
        streams.document(value | ({"recovered": documents.flat(recovered)} if recovered else {}))

    def items(self, items: Iterable[dict[str, Any]], next: str | None = None, **beside: Any) -> None:  # noqa: A002
        """Print a list as the one JSON document; `next` is the cursor of the next page, if the list has pages."""
        self.document({"items": list(items), "next": next, **beside})

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before something destructive; raise Refused unless the answer, or `--yes`, says to go on."""
        if yes:
            return
        if self.json or not streams.can_ask():
            raise Refused("needs confirmation, but stdin is not a terminal", hint="Pass --yes.")
        if not streams.ask(question):
            decline()

    def typed(self, *words: str) -> str:
        """Return a holdfast command as it is typed into a shell, with the global options that name the same workspace.

        A password in a URL is left out of it.
        """
        options = [f"--{name.replace('_', '-')}" for name, is_on in self._options.items() if is_on]
        for option, place in (("-C", self.directory), ("--store", self.store)):
            options += [option, place] if place else []
        return " ".join(shell_word(without_password(word)) for word in ("holdfast", *options, *words))

    def _around(self, folder: Path, attempt: Callable[[Path], Workspace]) -> str:
        """The workspace above a folder that `-C` names, for a shell."""
        if not self.directory or self.store:
            return ""
        try:
            found = nearest(folder.parent, attempt, home=_home(), any_owner=False)
        except HoldfastError:
            return ""
        if found is None:
            return ""
        found.close()
        return shell_word(os.fspath(found.path))

    def close(self) -> None:
        """Print the last notes, at the end of every run."""
        self.tell_whose()
        self.tell_recovered()

    def tell_recovered(self) -> None:
        """Say once how an interrupted restore was dealt with: on opening, or by the command itself."""
        recovered = self._workspace.recovered if self._workspace else None
        if recovered is None or recovered is self._told:
            return
        from holdfast.model import documents

        self._told = recovered
        found = documents.short(recovered.found_id)
        found = f"what was found is kept in {found}" if found else "it had changed nothing"
        target = documents.short(recovered.target)
        line = f"An interrupted {recovered.verb} to {target} was {recovered.outcome}; {found}."
        streams.note(render.escape(line))
        streams.notes(render.listing(recovered.failed))

    def tell_whose(self) -> None:
        """Say how to take over a store, after looking into one of a folder that may be this one, moved."""
        if self._workspace is None or self.store is None:
            return
        from holdfast.workspace.store_paths import owner_of

        here, owner = os.fspath(self._workspace.path), owner_of(self._workspace.store, os.environ)
        if owner not in (None, here) and (not os.path.lexists(owner) or os.path.realpath(owner) == here):
            line = f"These are checkpoints of {owner}. If it is {here} now, take them along:"
            streams.note(render.escape(f"{line} {self.typed('save')}"))


def typed(*words: str) -> str:
    """Return a holdfast command as it is typed into a shell: `App.typed` of the current click context."""
    return _current().typed(*words)


def pass_app(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have click hand a command the App of its run, as the first argument."""

    @wraps(function)
    def with_app(*args: Any, **options: Any) -> Any:
        return function(_current(), *args, **options)

    return with_app


def _current() -> App:
    import click  # start-up cost: who calls this has loaded it, and `holdfast log` does without

    return click.get_current_context().ensure_object(App)


def decline() -> NoReturn:
    """End because the answer was no: not an error, but the exit code says it."""
    import click  # as above

    streams.note("Nothing was changed.")
    raise click.exceptions.Exit(Exit.REFUSED)


def nearest(start: Path, attempt: Callable[[Path], Workspace], *, home: Path, any_owner: bool) -> Workspace | None:
    """Open the nearest folder, from `start` upward and below the home folder, that has a store already.

    A refusal of `start` itself is raised. Further up it ends the search, except with `any_owner`: where one store was
    named, each folder is asked whether it is the owner.
    """
    refusal: Refused | None = None
    for folder in (start, *start.parents):
        if folder != start and folder in (home, Path(folder.anchor)):
            break
        try:
            return attempt(folder)
        except NotFound:
            continue
        except Refused as error:
            refusal = refusal or (error if folder == start else None)
            if not any_owner:
                break
    if refusal is not None:
        raise refusal
    return None


def _existing(folder: Path, attempt: Callable[[Path], Workspace]) -> Workspace | None:
    try:
        return attempt(folder)
    except NotFound:
        if not folder.is_dir():
            raise
        return None


def _home() -> Path:
    return Path(os.path.realpath(os.path.expanduser("~")))
