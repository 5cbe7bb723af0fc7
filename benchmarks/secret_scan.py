"""Finding secrets, measured on a labelled set: ours against `detect-secrets`, if that is installed.

    python benchmarks/secret_scan.py              # precision, recall, MB/s
    python benchmarks/secret_scan.py --misses     # also what was missed and what was found wrongly

Positive: real formats with random bodies, in the lines that people write them in. Negative: files of this machine that
contain no secrets but much that looks like one: lock files, minified scripts, hashes, UUIDs, base64 images, sources of
installed packages.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import random
import string
import sysconfig
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.secret_patterns import find_secrets

EACH = 40
SOURCES = 1500
ALNUM = string.ascii_letters + string.digits
URL64 = ALNUM + "-_"
Find = Callable[[str, bytes], "list[int]"]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=7, help="which files of this machine are read")
    parser.add_argument("--misses", action="store_true", help="show what was missed and what was found wrongly")
    options = parser.parse_args()
    positive, negative = [*_positive(random.Random(7))], [*_negative(random.Random(options.seed))]
    size = sum(len(data) for _, data in negative)
    print(f"{len(positive)} secrets; {len(negative)} files without, {size / 1e6:.1f} MB")
    for name, find in _detectors():
        _report(name, find, positive, negative, shows=options.misses)


def _report(
    name: str, find: Find, positive: list[tuple[str, str]], negative: list[tuple[str, bytes]], *, shows: bool
) -> None:
    missed: dict[str, int] = {}
    for kind, line in positive:
        if not find("settings.py", f"# settings\n{line}\n".encode()):
            missed[kind] = missed.get(kind, 0) + 1
            if shows:
                print("  missed", kind, line)
    began = time.process_time()
    wrong = [(path, line) for path, data in negative for line in find(path, data)]
    seconds = time.process_time() - began
    if shows:
        for path, line in wrong[:60]:
            text = dict(negative)[path].splitlines()[line - 1][:160]
            print("  wrong", path, line, text)
    right = len(positive) - sum(missed.values())
    size = sum(len(data) for _, data in negative)
    print(
        f"{name:<16} recall {right / len(positive):.3f}  precision {right / (right + len(wrong)):.3f}"
        f"  wrong {len(wrong)}  {size / seconds / 1e6:.1f} MB/s  missed {missed}"
    )


def _detectors() -> Iterator[tuple[str, Find]]:
    yield "holdfast", lambda _, data: [each.line for each in find_secrets(data)]
    try:
        from detect_secrets import SecretsCollection
        from detect_secrets.settings import default_settings
    except ImportError:
        print("detect-secrets is not installed")
        return

    def find(path: str, data: bytes) -> list[int]:
        with tempfile.NamedTemporaryFile(suffix=Path(path).suffix) as file, default_settings():
            file.write(data)
            file.flush()
            secrets = SecretsCollection()
            secrets.scan_file(file.name)
            return [each.line_number for _, each in secrets]

    yield "detect-secrets", find


# secrets


def _positive(rng: random.Random) -> Iterator[tuple[str, str]]:
    def text(alphabet: str, count: int) -> str:
        return "".join(rng.choices(alphabet, k=count))

    def jwt() -> str:
        parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": text("0123456789", 10), "iat": rng.randrange(2**31)})
        head = (base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts)
        return ".".join((*head, text(URL64, 43)))

    makers: dict[str, Callable[[], str]] = {
        "aws-id": lambda: f"AKIA{text(string.ascii_uppercase + '234567', 16)}",
        "aws-secret": lambda: f"aws_secret_access_key = {text(ALNUM + '/+', 40)}",
        "github": lambda: f"gh{rng.choice('pousr')}_{text(ALNUM, 36)}",
        "github-pat": lambda: f"github_pat_{text(ALNUM, 22)}_{text(ALNUM, 59)}",
        "slack": lambda: f"xoxb-{text('0123456789', 12)}-{text('0123456789', 13)}-{text(ALNUM, 24)}",
        "stripe": lambda: f"sk_live_{text(ALNUM, 24)}",
        "openai": lambda: f"sk-proj-{text(URL64, 74)}T3BlbkFJ{text(URL64, 74)}",
        "openai-old": lambda: f"sk-{text(ALNUM, 20)}T3BlbkFJ{text(ALNUM, 20)}",
        "anthropic": lambda: f"sk-ant-api03-{text(URL64, 93)}AA",
        "google": lambda: f"AIza{text(URL64, 35)}",
        "jwt": jwt,
        "private-key": lambda: _private(rng),
        "url": lambda: f"postgres://app:{text(ALNUM + '!$_', 14)}@db.internal:5432/app",
        "redis-url": lambda: f"redis://:{text(ALNUM, 20)}@cache:6379/0",
        "generic-hex": lambda: f"API_SECRET={text('0123456789abcdef', 40)}",
        "generic-base64": lambda: f'client_secret: "{text(ALNUM + "+/", 43)}="',
        "generic-token": lambda: f"'auth_token': '{text(URL64, 32)}'",
        "password": lambda: f'DB_PASSWORD="{text(ALNUM, 6)}{rng.randrange(10)}{text(ALNUM + "!#$%", 8)}"',
    }
    makers |= {
        "yaml-password": lambda: f"  password: {text(ALNUM, 6)}{rng.randrange(10)}{text(ALNUM + '!#$%', 8)}",
        "authorization": lambda: f"Authorization: Bearer {text(URL64, 40)}",
        "curl": lambda: f"curl -s -u admin:{text(ALNUM + '!_', 12)} https://host.internal/",
    }
    wrapped = ("{}", 'KEY = "{}"', "export TOKEN={}", '{{"value": "{}"}}', "curl -H 'Authorization: Bearer {}'", "- {}")
    bare = {"private-key", "aws-secret", "generic-hex", "generic-base64", "generic-token", "password"}
    bare |= {"yaml-password", "authorization", "curl"}
    for kind, make in makers.items():
        for number in range(EACH):
            body = make()
            yield kind, body if kind in bare else wrapped[number % len(wrapped)].format(body)


def _private(rng: random.Random) -> str:
    kind = rng.choice(("RSA ", "EC ", "", "OPENSSH "))
    body = base64.encodebytes(rng.randbytes(600)).decode()
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{body}-----END {kind}PRIVATE KEY-----"


# texts without secrets


def _negative(rng: random.Random) -> Iterator[tuple[str, bytes]]:
    lines = [f"{hashlib.sha256(rng.randbytes(8)).hexdigest()}  dist/file-{n}.whl" for n in range(2000)]
    yield "SHA256SUMS", "\n".join(lines).encode()
    yield "ids.csv", "\n".join(f"{uuid.UUID(bytes=rng.randbytes(16))},{n}" for n in range(5000)).encode()
    image = base64.b64encode(rng.randbytes(60_000)).decode()
    yield "page.html", f'<img src="data:image/png;base64,{image}">'.encode()
    yield "image.b64", base64.encodebytes(rng.randbytes(60_000))
    log = (f"commit {hashlib.sha1(rng.randbytes(8)).hexdigest()}\nAuthor: A <a@example.org>\n" for _ in range(2000))
    yield "git.log", "".join(log).encode()
    packages = Path(sysconfig.get_path("purelib"))
    kinds = ("*.py", "*.js", "*.json", "*.lock", "*.md", "*.toml", "*.css", "RECORD")
    found = sorted(path for kind in kinds for path in packages.rglob(kind) if path.is_file())
    rng.shuffle(found)
    found += [Path("/usr/share/javascript/jquery/jquery.min.js"), *Path("/usr/lib/node_modules").rglob("*.min.js")]
    found += [*Path("/usr/lib/node_modules").rglob("package-lock.json"), *packages.rglob("*.lock")]
    count = 0
    for path in found if (found := dict.fromkeys(found)) else ():
        if (
            path.is_file()
            and path.stat().st_size < 1 << 20
            and (count < SOURCES or path.suffix in (".lock", ".min.js"))
        ):
            count += 1
            yield str(path), path.read_bytes()


if __name__ == "__main__":
    main()
