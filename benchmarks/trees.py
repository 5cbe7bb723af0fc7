"""Generated folders to measure on: the same seed gives the same names, sizes and bytes on every machine."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

CORPUS_BYTES = 8 << 20
TOPIC_BYTES = 32 << 10

TEXT_EXTENSIONS = {
    ".py": 22, ".ts": 14, ".js": 10, ".tsx": 7, ".json": 8, ".md": 7, ".go": 6, ".c": 5, ".h": 5, ".rs": 4,
    ".java": 4, ".yml": 3, ".html": 2, ".css": 2, ".txt": 1,
}  # fmt: skip
BINARY_EXTENSIONS = {".png": 5, ".woff2": 1, ".jpg": 2, ".bin": 1, ".gz": 1}
SYLLABLES = [
    "con", "fig", "ser", "ver", "load", "er", "pro", "cess", "re", "quest", "mod", "el", "ta", "ble", "in", "dex",
    "par", "se", "util", "han", "dle", "r", "cli", "ent", "to", "ken",
]  # fmt: skip
KEYWORDS = [
    "return", "if", "else", "for", "in", "self", "def", "const", "let", "import", "from", "None", "null", "new",
    "await", "this", "class", "=", "==", "(", ")", ".", ",",
]  # fmt: skip

IGNORE_RULES = """\
# what tools leave behind
__pycache__/
*.py[cod]
*.log
.env
node_modules/
/dist/
/build/
*.egg-info/
.cache/
!keep.log
docs/**/generated/
*~
"""


@dataclass(frozen=True, slots=True)
class Tree:
    """A generated folder: where it is, and the files that every contender saves."""

    root: Path
    title: str
    files: list[str]
    folders: int
    total_bytes: int


class Text:
    """A stock of text that compresses as source code does; files are slices of it."""

    def __init__(self, rng: random.Random) -> None:
        vocabulary = ["_".join(_word(rng) for _ in range(rng.choice((1, 1, 2, 2, 3)))) for _ in range(20_000)]
        topics = [_topic(rng, rng.sample(vocabulary, 250)) for _ in range(CORPUS_BYTES // TOPIC_BYTES)]
        self._corpus = "".join(topics).encode()
        self._rng = rng

    def take(self, size: int) -> bytes:
        """Return `size` bytes that no other file begins with."""
        head = f"# {self._rng.getrandbits(64):016x}\n".encode()[:size]
        body = bytearray(head)
        while len(body) < size:
            start = self._rng.randrange(len(self._corpus) - 1)
            body += self._corpus[start : start + size - len(body)]
        return bytes(body)


def realistic(root: Path, *, files: int = 30_000, seed: int = 1) -> Tree:
    """Make a source tree: log-normal sizes (median 2.5 kB, some up to 1 MB), one file in ten binary, ten a folder."""
    rng = random.Random(seed)
    text = Text(rng)
    folders = _folders(rng, max(1, files // 10))
    weights = [min(rng.paretovariate(1.1), 60.0) for _ in folders]
    homes = folders[:files] + rng.choices(folders, weights, k=max(0, files - len(folders)))
    made: list[str] = []
    total = 0
    for folder in folders:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for number, folder in enumerate(homes):
        size = min(max(int(rng.lognormvariate(7.824, 1.43)), 16), 1_000_000)
        binary = rng.random() < 0.1
        extensions = BINARY_EXTENSIONS if binary else TEXT_EXTENSIONS
        (extension,) = rng.choices(list(extensions), list(extensions.values()))
        path = f"{folder}/{_word(rng)}_{number:05d}{extension}".removeprefix("./")
        _write(root / path, _binary(rng, size) if binary else text.take(size))
        if rng.random() < 0.02:
            (root / path).chmod(0o755)
        made.append(path)
        total += size
    (root / ".gitignore").write_text(IGNORE_RULES)
    (root / ".env").write_text("TOKEN=0123456789abcdef\n")
    _age(root, made, rng)
    return Tree(root, f"{files:,} files of realistic sizes", made, len(folders), total)


def uniform(root: Path, *, files: int = 100_000, size: int = 1_000, seed: int = 2) -> Tree:
    """Make many small files of one size, a hundred to a folder."""
    rng = random.Random(seed)
    text = Text(rng)
    made: list[str] = []
    for number in range(files):
        folder = f"d{number // 100:04d}"
        if number % 100 == 0:
            (root / folder).mkdir(parents=True)
        made.append(f"{folder}/f{number % 100:02d}.txt")
        _write(root / made[-1], text.take(size))
    _age(root, made, rng)
    return Tree(root, f"{files:,} files of {size / 1000:g} kB", made, -(-files // 100), files * size)


def big_file(path: Path, *, mebibytes: int, seed: int = 3) -> None:
    """Write one file in which compressible and incompressible mebibytes take turns."""
    rng = random.Random(seed)
    text = Text(rng)
    with path.open("wb") as out:
        for number in range(mebibytes):
            out.write(text.take(1 << 20) if number % 2 else rng.randbytes(1 << 20))


def edit(tree: Tree, paths: list[str], *, seed: int) -> None:
    """Change files as an agent does: some lines in the middle of each, written in place."""
    rng = random.Random(seed)
    for path in paths:
        target = tree.root / path
        content = target.read_bytes()
        middle = len(content) // 2
        line = f"\n# edited {rng.getrandbits(64):016x}\n".encode()
        target.write_bytes(content[:middle] + line + content[middle:])


def spread(tree: Tree, count: int, *, seed: int) -> list[str]:
    """Choose `count` files, one from each equal part of the tree."""
    rng = random.Random(seed)
    ordered = sorted(tree.files)
    step = len(ordered) / count
    return [ordered[int(part * step + rng.random() * step)] for part in range(count)]


def _word(rng: random.Random) -> str:
    return "".join(rng.choices(SYLLABLES, k=rng.choice((1, 2, 2, 3))))


def _topic(rng: random.Random, words: list[str]) -> str:
    """Return text about one thing: few words used often, as in one source file."""
    weights = [1 / (rank + 3) for rank in range(len(words))]
    lines: list[str] = []
    size = indent = 0
    while size < TOPIC_BYTES:
        indent = min(max(indent + rng.choice((-1, -1, 0, 0, 0, 1)), 0), 4)
        chosen = rng.choices(words, weights, k=rng.randint(1, 4))
        line = "    " * indent + " ".join(f"{rng.choice(KEYWORDS)} {word}" for word in chosen)
        if rng.random() < 0.15:
            line += f" {rng.randrange(10_000)}"
        lines.append(line + "\n")
        size += len(line) + 1
    return "".join(lines)


def _folders(rng: random.Random, count: int) -> list[str]:
    """Return paths of folders, most of them three to six deep."""
    made = ["."]
    seen = {"."}
    while len(made) < count:
        parent = min(rng.choice(made), rng.choice(made), key=lambda path: path.count("/"))
        path = f"{parent}/{_word(rng)}"
        if path not in seen:
            seen.add(path)
            made.append(path)
    return [path.removeprefix("./") for path in made]


def _binary(rng: random.Random, size: int) -> bytes:
    """Return bytes of which the first eighth is a compressible header."""
    return b"\x89BIN\x00\x00\x00\x01" * (size // 64) + rng.randbytes(size - size // 64 * 8)


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb", buffering=0) as out:
        out.write(content)


def _age(root: Path, paths: list[str], rng: random.Random) -> None:
    """Give every file a time in the past, so that none looks young, and a last use now, so that no reader sets one."""
    used = time.time_ns()
    for path in paths:
        os.utime(root / path, ns=(used, 1_700_000_000_000_000_000 + rng.randrange(10**16)))
