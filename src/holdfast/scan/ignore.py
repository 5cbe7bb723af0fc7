"""Ignore rules: which paths git's rules, `.holdfastignore` files and `exclude_patterns` leave out, and by which line.

Pure: contents of ignore files come in, verdicts go out. Git compares bytes, so names and patterns are compared here as
text with one character for each byte (`_bytewise`); a name in plain ASCII is that text already.

Read in two parts: rules and what they decide; one source of patterns. What one pattern matches is in `pattern`.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from holdfast.scan.generated import DEPENDENCY_FOLDERS
from holdfast.scan.pattern import Pattern, regex, spelled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MAX_IGNORE_BYTES = 1 << 20
"""An ignore file above this size counts as empty."""

IGNORED = "ignored"  # by git's rules
EXCLUDED = "excluded"  # by exclude_patterns, a .holdfastignore or the built-in list of dependency folders
INCLUDED = "included"  # by a negated line in exclude_patterns or a .holdfastignore, whatever git's rules say


class Verdict:
    """What is to happen to a path (IGNORED, EXCLUDED or INCLUDED), and the rule that says so, for people to read."""

    __slots__ = ("kind", "rule")

    def __init__(self, kind: str, rule: str) -> None:
        self.kind = kind
        self.rule = rule

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Verdict) and (self.kind, self.rule) == (other.kind, other.rule)

    def __hash__(self) -> int:
        return hash((self.kind, self.rule))

    def __repr__(self) -> str:
        return f"Verdict({self.kind!r}, {self.rule!r})"


class Sources:
    """What one folder's own ignore files say, and whether it is the root of a git repository."""

    __slots__ = ("gitignore", "holdfastignore", "info_exclude", "repository")

    def __init__(
        self,
        *,
        gitignore: bytes | None = None,
        holdfastignore: bytes | None = None,
        repository: bool = False,
        info_exclude: bytes | None = None,
    ) -> None:
        self.gitignore = gitignore
        self.holdfastignore = holdfastignore
        self.repository = repository
        self.info_exclude = info_exclude


class Around:
    """The rules of the git repository that a workspace is a folder of.

    path: the workspace's path in the repository. gitignores: the text of `.gitignore` by folder of the repository, for
    the folders above the workspace.
    """

    __slots__ = ("gitignores", "info_exclude", "path")

    def __init__(self, path: str, *, gitignores: Mapping[str, bytes], info_exclude: bytes) -> None:
        self.path = path
        self.gitignores = gitignores
        self.info_exclude = info_exclude

    def layers(self) -> tuple[_Layer, ...]:
        """Its rules as they are seen from the workspace; what outranks comes first."""
        found: tuple[_Layer, ...] = ()
        folder, inner, up = self.path, "", ""
        while folder:
            folder, _, name = folder.rpartition("/")
            inner, up = f"{name}/{inner}" if inner else name, f"../{up}" if up else ".."
            found += _layers((_GITIGNORE, up, self.gitignores.get(folder)), seen_as=inner)
        return found + _layers((_INFO, up, self.info_exclude), seen_as=inner)

    def ignores_the_workspace(self, excludes_file: bytes) -> bool:
        """Whether the workspace itself is left out of the repository, which then says nothing about its files."""

        def sources(folder: str) -> Sources:
            text = self.gitignores.get(folder)
            return Sources(gitignore=text, repository=not folder, info_exclude=self.info_exclude)

        root = Rules.root(excludes_file=excludes_file)
        verdict = decide_path(root, self.path, is_dir=True, sources=sources)
        return verdict is not None and verdict.kind != INCLUDED


class Rules:
    """Everything that is needed to decide about the direct entries of one folder. Never changes.

    digest: rules with equal digests decide equally.
    """

    __slots__ = ("_excludes_file", "_filter", "_hard", "_soft", "digest")

    def __init__(self, hard: tuple[_Layer, ...], soft: tuple[_Layer, ...], *, excludes_file: bytes) -> None:
        self._hard = hard  # in both, what outranks comes first
        self._soft = soft
        self._excludes_file = excludes_file
        self._filter: _Filter | None = None
        self.digest = blake2b(b"".join(layer.digest for layer in hard + soft), digest_size=16).digest()

    @classmethod
    def root(
        cls, *, exclude_patterns: Sequence[str] = (), excludes_file: bytes = b"", around: Around | None = None
    ) -> Rules:
        """Start a chain with what holds in the whole workspace.

        exclude_patterns: each is taken as it stands (`#` and spaces at the end belong to it), as by `git ls-files
        --exclude`; the last one that matches decides. excludes_file: content of the user's `core.excludesFile`.
        """
        lines = b"\0".join(text.partition("\0")[0].encode("utf-8", "surrogateescape") for text in exclude_patterns)
        hard = (_Layer(_PATTERNS, "", lines),) if lines else ()
        soft = around.layers() if around else ()
        soft += _layers((_USER, "", excludes_file), seen_as=around.path if around else "")
        return cls(hard, soft, excludes_file=excludes_file)

    def inside(
        self,
        folder: str,
        *,
        gitignore: bytes | None = None,
        holdfastignore: bytes | None = None,
        repository: bool = False,
        info_exclude: bytes | None = None,
    ) -> Rules:
        """Return the rules for the entries of `folder`, given its own ignore files; itself where there are none.

        repository: `folder` is the root of a git repository. Git's rules from further out end here, and those of the
        user's `core.excludesFile` start from here. info_exclude is heeded only with it.
        """
        if not (gitignore or holdfastignore or repository):
            return self
        soft = _layers((_GITIGNORE, folder, gitignore))
        if repository:
            soft += _layers((_INFO, folder, info_exclude), (_USER, folder, self._excludes_file))
        else:
            soft += self._soft
        first = 1 if self._hard and self._hard[0].kind == _PATTERNS else 0
        hard = self._hard[:first] + _layers((_HOLDFASTIGNORE, folder, holdfastignore)) + self._hard[first:]
        return Rules(hard, soft, excludes_file=self._excludes_file)

    def decide(self, path: str, *, is_dir: bool) -> Verdict | None:
        """Decide about one path alone, by the rules of the folder that it lies in; None: nothing leaves it out.

        path: relative to the workspace. is_dir: a real folder, not a link to one. What becomes of the folders above
        it is not looked at here (`decide_path` does that).
        """
        if not path.isascii():
            path = _bytewise(path)
        name = path[path.rfind("/") + 1 :]
        if self._filter is None:
            self._filter = _Filter.any_of([layer.filter for layer in self._hard + self._soft])
        if self._filter.passes(path, name):
            for layer in self._hard + self._soft:
                pattern = layer.match(path, name, is_dir)
                if pattern is not None:
                    return pattern.verdict
        return None


def decide_path(root: Rules, path: str, *, is_dir: bool, sources: Callable[[str], Sources]) -> Verdict | None:
    """Decide about a path as a walk from the workspace's root would: a folder that is left out takes all with it.

    sources: called with each folder from '' down to the one that the path lies in.
    """
    rules = root
    end = -1
    while True:
        folder = path[: max(end, 0)]
        own = sources(folder)
        rules = rules.inside(
            folder,
            gitignore=own.gitignore,
            holdfastignore=own.holdfastignore,
            repository=own.repository,
            info_exclude=own.info_exclude,
        )
        end = path.find("/", end + 1)
        if end < 0:
            return _decide_folder(rules, path) if is_dir else rules.decide(path, is_dir=False)
        verdict = _decide_folder(rules, path[:end])
        if verdict is not None and verdict.kind != INCLUDED:
            return verdict


def _decide_folder(rules: Rules, path: str) -> Verdict | None:
    verdict = rules.decide(path, is_dir=True)
    name = path[path.rfind("/") + 1 :]
    if name in DEPENDENCY_FOLDERS and (verdict is None or verdict.kind == IGNORED):
        return Verdict(EXCLUDED, f"built-in: {name}")
    return verdict


# ---- One source of patterns ----

_PATTERNS = "exclude_patterns"
_HOLDFASTIGNORE = ".holdfastignore"
_GITIGNORE = ".gitignore"
_INFO = ".git/info/exclude"
_USER = "core.excludesFile"


def _layers(*sources: tuple[str, str, bytes | None], seen_as: str = "") -> tuple[_Layer, ...]:
    return tuple(
        _Layer(kind, folder, text, seen_as) for kind, folder, text in sources if text and len(text) <= MAX_IGNORE_BYTES
    )


class _Layer:
    """The patterns of one source, which hold from one folder down. Parsed when first needed.

    seen_as: the workspace's path as the patterns see it, where their folder is above the workspace.
    """

    __slots__ = ("_content", "_filter", "_patterns", "base", "digest", "inner", "kind")

    def __init__(self, kind: str, folder: str, content: bytes, seen_as: str = "") -> None:
        self.kind = kind
        self.base = _bytewise(folder) + "/" if folder else ""
        self.inner = _bytewise(seen_as) + "/" if seen_as else ""
        place = f"{kind}\0{self.base}\0{self.inner}\0".encode("latin-1")
        self.digest = blake2b(place + content, digest_size=16).digest()
        self._content = content
        self._patterns: list[Pattern] | None = None
        self._filter: _Filter | None = None

    @property
    def patterns(self) -> list[Pattern]:
        """The patterns that can match at all; the first of them that does match decides."""
        if self._patterns is None:
            parsed = [self._parse(number, line) for number, line in self._lines()]
            self._patterns = [pattern for pattern in reversed(parsed) if pattern]
        return self._patterns

    @property
    def filter(self) -> _Filter:
        if self._filter is None:
            self._filter = _Filter.of(self.patterns, "" if self.inner else self.base, self.inner)
        return self._filter

    def match(self, path: str, name: str, is_dir: bool) -> Pattern | None:
        if not self.filter.passes(path, name):
            return None
        if self.inner:
            below = self.inner + path
        else:
            below = path[len(self.base) :] if path.startswith(self.base) else ""
        for pattern in self.patterns:
            if pattern.dir_only and not is_dir:
                continue
            subject = name if pattern.by_name else below
            if subject == pattern.word or (pattern.word is None and subject and pattern.matches(subject)):
                return pattern
        return None

    def _lines(self) -> Iterator[tuple[int, str]]:
        text = self._content.decode("latin-1")
        if self.kind == _PATTERNS:
            yield from enumerate(text.split("\0"))
            return
        for number, line in enumerate(text.removeprefix("\xef\xbb\xbf").split("\n"), 1):
            if not line.startswith("#"):
                yield number, _trimmed(line.removesuffix("\r").partition("\0")[0])

    def _parse(self, number: int, line: str) -> Pattern | None:
        negated = line.startswith("!")
        pattern = Pattern.parse(line[1:] if negated else line)
        if pattern is not None:
            place = self.kind if self.kind in (_PATTERNS, _USER) else self.base + self.kind
            at = "" if self.kind == _PATTERNS else f":{number}"
            rule = f"{place}{at}: {line}".encode("latin-1").decode("utf-8", "backslashreplace")
            if self.kind in (_PATTERNS, _HOLDFASTIGNORE):
                pattern.verdict = Verdict(INCLUDED if negated else EXCLUDED, rule)
            elif not negated:
                pattern.verdict = Verdict(IGNORED, rule)
        return pattern


def _bytewise(text: str) -> str:
    """Turn text as `os.fsdecode` gives it into text with one character for each byte of the name."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def _trimmed(line: str) -> str:
    """Take the spaces off the end, up to one that a backslash protects."""
    end = len(line.rstrip(" "))
    backslashes = end - len(line[:end].rstrip("\\"))
    return line[: end + backslashes % 2]


class _Filter:
    """A quick test that lets through every path that some pattern may match, and few others."""

    __slots__ = ("beginnings", "endings", "heads", "matches", "names")

    def __init__(self) -> None:
        self.names: set[str] = set()  # a path's last component is one of these, …
        self.endings: tuple[str, ...] = ()  # … or ends so, …
        self.beginnings: tuple[str, ...] = ()  # … or begins so, …
        self.heads: tuple[str, ...] = ()  # … or the whole path begins so, …
        self.matches: tuple[Callable[[str], object], ...] = ()  # … or the last component is matched by one of these

    def passes(self, path: str, name: str) -> bool:
        if (
            name in self.names
            or name.endswith(self.endings)
            or name.startswith(self.beginnings)
            or path.startswith(self.heads)
        ):
            return True
        for matches in self.matches:  # noqa: SIM110 - a generator would cost more than what it goes through
            if matches(name):
                return True
        return False

    @classmethod
    def of(cls, patterns: Sequence[Pattern], base: str, inner: str) -> _Filter:
        """Sort patterns by what the last component of their matches must look like."""
        names, endings, beginnings, heads, regexes = (set[str]() for _ in range(5))
        for pattern in patterns:
            last, is_free = pattern.last_component()
            used, words = spelled(last)
            used_back, words_back = spelled(last[::-1])
            if is_free:
                words = [base + word for word in spelled(pattern.tokens)[1]]
                heads.update(word[len(inner) :] for word in words if word.startswith(inner) or inner.startswith(word))
            elif used == len(last):
                names.update(words)
            elif used_back >= max(used, 1):
                endings.update(word[::-1] for word in words_back)
            elif used:
                beginnings.update(words)
            else:
                regexes.add(regex(last))
        made = cls()
        made.names, made.endings, made.beginnings, made.heads = names, tuple(endings), tuple(beginnings), tuple(heads)
        if regexes:
            made.matches = (re.compile("|".join(regexes), re.DOTALL).fullmatch,)
        return made

    @classmethod
    def any_of(cls, filters: Sequence[_Filter]) -> _Filter:
        made = cls()
        for each in filters:
            made.names |= each.names
            made.endings += each.endings
            made.beginnings += each.beginnings
            made.heads += each.heads
            made.matches += each.matches
        return made
