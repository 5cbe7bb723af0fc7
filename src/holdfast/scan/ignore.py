"""Ignore rules: which paths git's rules, `.holdfastignore` files and `exclude_patterns` leave out, and by which line.

Pure: contents of ignore files come in, verdicts go out. Git compares bytes, so names and patterns are compared here as
text with one character for each byte (`_bytewise`); a name in plain ASCII is that text already.

Read in three parts: rules and what they decide; one source of patterns; one pattern, matched as git does, quirks
included.
"""

from __future__ import annotations

import re

try:
    from _blake2 import blake2b  # not from `hashlib`: loading OpenSSL takes longer (start-up cost)
except ImportError:  # a Python built without it
    from hashlib import blake2b

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


DEPENDENCY_FOLDERS = frozenset(
    {
        *("node_modules", "bower_components", "jspm_packages", ".pnpm-store", ".sass-cache"),
        *(".venv", "__pycache__", "__pypackages__", ".eggs", ".tox", ".nox", ".direnv"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".pytype"),
        *(".gradle", ".terraform", ".terragrunt-cache", ".dart_tool", ".stack-work", "elm-stuff"),
        *(".zig-cache", ".ccls-cache", ".cpcache", ".shadow-cljs"),
    }
)
"""Left out whatever git's rules say: names that nobody gives to a folder of sources."""

BUILD_FOLDERS = frozenset(
    {
        *("build", "dist", "out", "target", "bin", "obj", "Release", "Debug"),
        *("_build", ".build", "cmake-build-debug", "cmake-build-release", "CMakeFiles", "zig-out", "_site"),
        *(".next", ".nuxt", ".output", ".svelte-kit", ".angular", ".astro", ".docusaurus", ".vite"),
        *(".cache", ".parcel-cache", ".turbo", ".nx", ".webpack", ".rollup.cache", "storybook-static"),
        *("coverage", "htmlcov", ".nyc_output", ".hypothesis", ".import_linter_cache", ".benchmarks"),
        *("vendor", "deps", "Pods", "Carthage", "DerivedData", "venv", "env", "ENV", "virtualenv", ".pixi", ".conda"),
        *("eggs", "develop-eggs", "wheels", "sdist", "pip-wheel-metadata", ".pybuilder", ".bloop", ".metals"),
        *(".serverless", ".aws-sam", "cdk.out", "bazel-bin", "bazel-out", "bazel-testlogs"),
    }
)
"""Left out only where git's rules ignore them: some projects keep sources under these names."""

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
            return self  # P8: most folders share their rules, which are parsed once
        soft = _layers((_GITIGNORE, folder, gitignore))
        if repository:
            soft += _layers((_INFO, folder, info_exclude), (_USER, folder, self._excludes_file))
        else:
            soft += self._soft
        # `exclude_patterns` outrank every file; of the files, the innermost comes first, as in git.
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
        if self._filter.passes(path, name):  # P8: most paths are settled without any pattern
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
    # As `classify` does: only a `!` of `exclude_patterns` or `.holdfastignore` brings such a folder back.
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
    # an ignore file above the limit has no rules; `Walk._ignore_file` reports it (P4)
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
            if not line.startswith("#"):  # git ends a line at CR LF and, as C does, at a zero byte
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
            elif not negated:  # git's `!` only takes back an earlier rule: no verdict
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


# One pattern
#
# It is read into tokens. A str is one byte out of those that it lists (a plain character: itself), an int is one of the
# gaps below. Text has one character for each byte.

_STAR = 0  # any bytes but "/"
_DIRS = 1  # "**/": nothing, or anything up to a "/"
_SOME_DIRS = 2  # "**\/", which git reads a little differently: the "/" must be there
_REST = 3  # "**" at the end: anything

_LAZY = {_DIRS: "(?:.*?/)??", _SOME_DIRS: ".*?/"}
_GREEDY = {_DIRS: "(?:.*/)?", _SOME_DIRS: ".*/", _REST: ".*"}

_MAX_NAME = 255  # bytes; the kernel's limit

_ANY = "".join(map(chr, (*range(1, 47), *range(48, 256))))
_DIGITS, _UPPER, _LOWER = "0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
_PRINT = "".join(map(chr, range(32, 127)))
_CLASSES = {
    "alnum": _DIGITS + _UPPER + _LOWER,
    "alpha": _UPPER + _LOWER,
    "blank": " \t",
    "cntrl": "".join(map(chr, (*range(1, 32), 127))),
    "digit": _DIGITS,
    "graph": _PRINT[1:],
    "lower": _LOWER,
    "print": _PRINT,
    "punct": "".join(char for char in _PRINT[1:] if not char.isalnum()),
    "space": " \t\n\r",
    "upper": _UPPER,
    "xdigit": _DIGITS + "ABCDEFabcdef",
}


class Pattern:
    """One line of an ignore file, without its `!`."""

    __slots__ = ("_match", "by_name", "dir_only", "tokens", "verdict", "word")

    def __init__(self, tokens: list[str | int], *, by_name: bool, dir_only: bool) -> None:
        self.tokens = tokens
        self.by_name = by_name
        self.dir_only = dir_only
        self.verdict: Verdict | None = None
        # The one text that it matches, if there is but one.
        self.word = "".join(map(str, tokens)) if all(isinstance(t, str) and len(t) == 1 for t in tokens) else None
        self._match: Callable[[str], object] | None = None

    @classmethod
    def parse(cls, text: str) -> Pattern | None:
        """Read a pattern; None where it can match nothing."""
        dir_only = text.endswith("/")
        text = text[:-1] if dir_only else text
        by_name = "/" not in text
        tokens = _tokens(text.removeprefix("/"), by_name=by_name)
        return cls(tokens, by_name=by_name, dir_only=dir_only) if tokens and _fits(tokens) else None

    def matches(self, subject: str) -> bool:
        if self._match is None:
            if len(subject) < sum(isinstance(token, str) for token in self.tokens):
                return False  # and a pattern of absurd length is never compiled
            self._match = re.compile(regex(self.tokens), re.DOTALL).fullmatch
        return self._match(subject) is not None

    def last_component(self) -> tuple[list[str | int], bool]:
        """The tokens behind the last slash, and whether a match's last component is free to be anything."""
        tokens = self.tokens
        start = len(tokens)
        while start and tokens[start - 1] not in ("/", _DIRS, _SOME_DIRS):
            start -= 1
        last = tokens[start:]
        # "a**/b" matches "ab" as well: the last component is then more than what stands behind the slash.
        is_glued = start > 1 and tokens[start - 1] == _DIRS and tokens[start - 2] not in ("/", _DIRS, _SOME_DIRS)
        return last, is_glued or _REST in last or last == [_STAR]


def _tokens(text: str, *, by_name: bool) -> list[str | int] | None:
    """Read a pattern as git does, quirks included; None where it can match nothing."""
    first = at = next((place for place, char in enumerate(text) if char in "*?[\\"), len(text))
    tokens: list[str | int] = list(text[:first])
    while at < len(text):
        char = text[at]
        if char == "*":
            start = at
            while text[at + 1 : at + 2] == "*":
                at += 1
            # Git compares what precedes the first special character by itself, so that a "**" right behind it counts
            # as the start of a component wherever it stands.
            at_start = not by_name and (start == first or text[start - 1] == "/")
            gap, width = _gap(text[at + 1 : at + 3]) if at > start and at_start else (_STAR, 0)
            if gap != _DIRS or tokens[-1:] != [_DIRS]:  # "**/**/" is "**/"
                tokens.append(gap)
            at += width
        elif char == "[":
            chars, at = _bracket(text, at + 1)
            if not chars:
                return None
            tokens.append(chars)
        else:
            at += char == "\\"
            if at == len(text):
                return None
            tokens.append(_ANY if char == "?" else text[at])
        at += 1
    return tokens


def _fits(tokens: Sequence[str | int]) -> bool:
    """Whether a name can be long enough for each component; keeps a line of a million characters from costing much."""
    length = 0
    for token in tokens if len(tokens) > _MAX_NAME else ():
        length = 0 if token in ("/", _DIRS, _SOME_DIRS) else length + isinstance(token, str)
        if length > _MAX_NAME:
            return False
    return True


def _gap(following: str) -> tuple[int, int]:
    """What a "**" at the start of a component is, and how much of the text behind it belongs to it."""
    if not following:
        return _REST, 0
    if following[0] == "/":
        return _DIRS, 1
    return (_SOME_DIRS, 2) if following == "\\/" else (_STAR, 0)


def _bracket(text: str, at: int) -> tuple[str, int]:
    """Read a bracket expression from behind its "[": the bytes that it matches, and the place of its "]".

    No bytes where it has no end, names an unknown class or leaves nothing to match.
    """
    negated = text[at : at + 1] in ("!", "^")
    at += negated
    start = at
    chosen: set[str] = set()
    previous = ""  # what a "-" makes a range from
    while (char := text[at : at + 1]) != "]" or at == start:
        if char == "-" and previous and text[at + 1 : at + 2] not in ("", "]"):
            at += 2 if text[at + 1] == "\\" else 1
            chosen.update(map(chr, range(ord(previous), ord(text[at : at + 1] or "\0") + 1)))
            previous = ""
        elif text[at : at + 2] == "[:" and (end := text.find("]", at + 2)) > at + 2 and text[end - 1] == ":":
            if text[at + 2 : end - 1] not in _CLASSES:
                return "", at
            chosen.update(_CLASSES[text[at + 2 : end - 1]])
            previous = ""
            at = end
        else:
            at += char == "\\"
            previous = text[at : at + 1]
            chosen.add(previous)
        if at >= len(text):
            return "", at
        at += 1
    return "".join(char for char in _ANY if (char in chosen) != negated), at


def spelled(tokens: Sequence[str | int]) -> tuple[int, list[str]]:
    """How many of the first tokens can be spelled out in a few words, and these words."""
    words = [""]
    for used, token in enumerate(tokens):
        if isinstance(token, int) or len(words) * len(token) > 16 or used == _MAX_NAME:
            return used, words
        words = [word + char for word in words for char in token]
    return len(tokens), words


def regex(tokens: Sequence[str | int]) -> str:
    """Write tokens as a regular expression that no path can hold up for long.

    What lies between two gaps has a fixed length (in bytes between stars, in components between double stars), so that
    the first place where it fits is as good as any later one: it is an atomic group, and nothing is tried again.
    """
    source = ""
    gap = None
    start = 0
    for place, token in enumerate(tokens):
        if isinstance(token, int) and token != _STAR:
            segment = _segment(tokens[start:place], is_last=False)
            source += segment if gap is None else f"(?>{_LAZY[gap]}{segment})"
            gap, start = token, place + 1
    return source + ("" if gap is None else _GREEDY[gap]) + _segment(tokens[start:], is_last=True)


def _segment(tokens: Sequence[str | int], *, is_last: bool) -> str:
    pieces = [""]
    for token in tokens:
        if isinstance(token, int):
            pieces.append("")
        elif token == _ANY:
            pieces[-1] += "[^/]"
        else:
            pieces[-1] += re.escape(token) if len(token) == 1 else "[" + re.escape(token) + "]"
    source = pieces[0]
    for place, piece in enumerate(pieces[1:], 2):
        source += f"[^/]*{piece}" if is_last and place == len(pieces) else f"(?>[^/]*?{piece})"
    return source
