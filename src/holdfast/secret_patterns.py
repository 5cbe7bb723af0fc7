"""Finding keys and passwords in text: known formats, passwords in URLs, and random values assigned to telling names.

Most text contains no secret, so a filter of a few calls that run in C decides where the regular expressions look. Each
pass of the filter costs about as much as hashing the same text.
"""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from math import log2
from typing import NamedTuple

WINDOW_MAX_BYTES = 4 << 10
"""The longest text around a candidate that is looked at; also the most that two neighbouring chunks are searched in
together."""
_RUN_BYTES = 12  # every known format has a run of letters and digits of this length
_ALPHA_BYTES = 20  # a shorter run of letters alone is a word
_RUNS = bytes(97 if chr(byte).isalnum() and byte < 128 else 32 for byte in range(256))
_WORD_CHARS = bytes(97 if (chr(byte).isalnum() and byte < 128) or byte in b"_-." else 32 for byte in range(256))
_NEEDLE = b"a" * _RUN_BYTES
_SHORT_RUNS = (b"AIza", b"hooks.slack.com/services/")  # these may have no such run, or not at the beginning
_FINDINGS_MAX = 100  # of one text


class _Pattern:
    """A regular expression that is compiled when it is first needed: most texts need none."""

    def __init__(self, pattern: bytes, flags: int = 0) -> None:
        self._source = pattern, flags

    @cached_property
    def match(self) -> Callable[..., re.Match[bytes] | None]:
        return re.compile(*self._source).match

    @cached_property
    def search(self) -> Callable[..., re.Match[bytes] | None]:
        return re.compile(*self._source).search


_FORMATS = {
    "aws-access-key": rb"A(?:KIA|SIA|BIA|CCA)[A-Z2-7]{16}(?![A-Za-z0-9])",
    "github-token": rb"gh[pousr]_[A-Za-z0-9]{36,251}|github_pat_[A-Za-z0-9_]{60,250}",
    "gitlab-token": rb"glpat-[A-Za-z0-9_-]{20,}",
    "slack-token": rb"xox[abeoprs]-[0-9]{8,}-[A-Za-z0-9-]{16,}|xapp-[0-9]-[A-Za-z0-9-]{30,}",
    "slack-webhook": rb"hooks\.slack\.com/services/T[A-Z0-9]{6,}/B[A-Z0-9]{6,}/[A-Za-z0-9]{20,}",
    "stripe-key": rb"[rs]k_(?:live|test)_[A-Za-z0-9]{20,}|whsec_[A-Za-z0-9]{28,}",
    "anthropic-key": rb"sk-ant-[a-z0-9]{2,12}-[A-Za-z0-9_-]{60,}",
    "openai-key": rb"sk-(?:(?:proj|svcacct|admin|None)-)?[A-Za-z0-9_-]{16,}T3BlbkFJ[A-Za-z0-9_-]{16,}|"
    rb"sk-[A-Za-z0-9]{48}(?![A-Za-z0-9])|sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{60,}",
    "google-key": rb"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])|GOCSPX-[A-Za-z0-9_-]{28}|ya29\.[A-Za-z0-9_-]{30,}",
    "huggingface-token": rb"hf_[A-Za-z]{34}(?![A-Za-z0-9])|hf_[A-Za-z0-9]{34,40}(?![A-Za-z0-9])",
    "npm-token": rb"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])",
    "pypi-token": rb"pypi-AgE[A-Za-z0-9_-]{50,}",
    "ai-provider-key": rb"sk-or-v1-[0-9a-f]{64}|xai-[A-Za-z0-9]{70,}|gsk_[A-Za-z0-9]{48,}|pplx-[A-Za-z0-9]{40,}|"
    rb"r8_[A-Za-z0-9]{37}(?![A-Za-z0-9])|fw_[A-Za-z0-9]{22,24}(?![A-Za-z0-9_])",
    "cloud-token": rb"do[opr]_v1_[0-9a-f]{64}|dapi[0-9a-f]{32}(?![0-9a-f])|hv[bsr]\.[A-Za-z0-9_-]{24,}|"
    rb"sbp_[0-9a-f]{40}(?![0-9a-f])|tskey-[a-z]{2,12}-[A-Za-z0-9]{8,}-[A-Za-z0-9]{16,}|dckr_pat_[A-Za-z0-9_-]{27}",
    "service-token": rb"lin_api_[A-Za-z0-9]{40}|PMAK-[0-9a-f]{24}-[0-9a-f]{34}|shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
    "discord-webhook": rb"(?<=/api/webhooks/)[0-9]{17,20}/[A-Za-z0-9_-]{60,}",
    "age-key": rb"AGE-SECRET-KEY-1[0-9A-Z]{58}",
    "sendgrid-key": rb"SG\.[A-Za-z0-9_-]{20,24}\.[A-Za-z0-9_-]{39,50}",
    "jwt": rb"eyJ[A-Za-z0-9_-]{12,}\.eyJ[A-Za-z0-9_-]{12,}\.[A-Za-z0-9_-]{16,}",
}
_KINDS = tuple(_FORMATS)
_FORMAT = _Pattern(b"|".join(b"(%s)" % each for each in _FORMATS.values()))
_PRIVATE = _Pattern(
    rb"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----(?=[^-]{0,400}?[A-Za-z0-9+/=]{40})"
    rb"(?:[^-]|-(?!----END)){40,8000}(?:-----END[A-Z0-9 ]{0,40}-----)?"
)
_URL = _Pattern(rb"[A-Za-z][A-Za-z0-9+.]{1,20}://[^\s:/@\"'<>`\\]{0,80}:([^\s/@\"'<>`\\]{4,200})@[A-Za-z0-9\[.$-]")
_URL_MAX_BYTES = 284  # of a user and a password
_WORDS = (b"passw", b"passphrase", b"pwd", b"secret", b"token", b"credential", b"key")
_KEY = _Pattern(rb"(?:api|access|auth|account|private|encryption|signing|master|shared)[_-]?$")
_VALUE = _Pattern(  # in JSON inside of JSON, backslashes precede the quotes
    rb"[A-Za-z0-9_]{0,24}[ \\]{0,8}[\"'\]]{0,2}[ \t]{0,8}(?::=|=>|=|:)[ \t\\]{0,8}([bru]{0,2}[\"'`]?)"
    rb"([A-Za-z0-9_+/=.~!@#$%^&*:-]{8,200})(?=[ \\]{0,8}([\"'`]?))"
)
_PASSWORDS = _WORDS[:3]
_HEADER = _Pattern(
    rb"uthorization[ \\\"']{0,8}[:=][ \\\"']{0,8}(?:bearer|basic|token)[ ]{1,4}([A-Za-z0-9_+/=.~-]{12,2000})",
    re.IGNORECASE,
)
_CURL = _Pattern(rb"curl[ ][^\n]{0,300}?[ ](?:-u|--user)[ =]{0,4}[\\\"']{0,8}([^\s:\"'\\]{1,80}):([^\s\"'\\`]{4,200})")
_SSHPASS = _Pattern(rb"sshpass[ ]{1,4}-p[ ]{0,4}[\\\"']{0,8}([^\s\"'\\`]{4,200})")
_MYSQL = _Pattern(rb"mysql(?:dump|admin)?[ ](?:[^\n]{0,200}?[ ])?-p([^\s\"'\\`]{6,200})")
_AFTER_FLAG = _Pattern(rb"[a-z-]{0,16}[ ]{1,4}[\\\"']{0,8}([A-Za-z0-9_+/=.~!@#%^&*:][A-Za-z0-9_+/=.~!@#%^&*:-]{7,199})")
_FLAG = _Pattern(
    rb"(?:^|[\s\"'])--[a-z0-9-]{0,24}$|\blogin[ \t]{1,4}\S{1,80}[ \t]{1,4}$"
)  # of a command, or of `.netrc`
_FLAG_BYTES = 100
_NAME = _Pattern(rb"[A-Za-z_]+[0-9]{1,3}$")  # such as `sha256` or `uint8`, which code has after a colon
_ENDS = b" \t\r\n,;\"'}\\"
_PLACEHOLDER = _Pattern(
    rb"(?i)example|placeholder|changeme|change[_-]me|dummy|your[_-]|xxxx|\*\*\*|\.\.\.|1234567890|abcdef(?:gh|01)|redacted|"
    rb"purged|^(?:user|pass|test|foo|none|null|true|false|secret|password|passwd|hunter2|tiger|mypassword|[%{<\[].*)$|\$\{|\$\(|^\$[A-Z_]+$|\{\{|%\(|%s"
)
_CODE = _Pattern(rb"^[A-Za-z_][A-Za-z_]*(?:[.:/-][A-Za-z_]+)*[(.:]?$|[a-z]\.[a-z_]+[.(]|^[./~]|^-|::|/[a-z_-]{3,}/")
_HEX = _Pattern(rb"[0-9a-f]+$")
_UUID = _Pattern(rb"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$", re.IGNORECASE)
_ALLOWED = _Pattern(rb"gitleaks:allow|pragma: ?allowlist secret|holdfast:allow")
_DIGIT, _LETTER = _Pattern(rb"[0-9]"), _Pattern(rb"[A-Za-z]")
_ESCAPES = ((b"\\n", b" \n"), (b"\\r", b"  "), (b"\\t", b"  "), (b'\\"', b' "'), (b"\\/", b" /"))


class Found(NamedTuple):
    """A secret in a text. The secret itself is not in it."""

    kind: str
    """Such as `github-token`; `password` or `assigned-secret` where only the name tells."""
    line: int
    start: int
    end: int
    masked: str
    """Shown instead of the secret: at most the four characters that all keys of its kind begin with."""


def find_secrets(data: bytes, *, is_json: bool = False) -> list[Found]:
    """Find secrets in a text, in order. `is_json`: escapes such as `\\n` separate words."""
    text = unescaped(data) if is_json else data
    found: dict[int, Found] = {}
    for start, end, kind in _spans(text):
        if kind not in _KINDS and any(each.start < end and start < each.end for each in found.values()):
            continue  # the known format says more
        if not _is_allowed(text, start):
            found.setdefault(
                start, Found(kind, text.count(b"\n", 0, start) + 1, start, end, _mask(text, start, end, kind))
            )
        if len(found) >= _FINDINGS_MAX:
            break
    return [found[start] for start in sorted(found)]


def redact(text: str) -> str:
    """Replace the secrets of a text, which may be JSON, by `[redacted KIND]`."""
    data = text.encode("utf-8", "surrogateescape")
    while found := find_secrets(data, is_json=True):
        out, at = [], 0
        for each in found:
            if each.start >= at:
                out += [data[at : each.start], b"[redacted %s]" % each.kind.encode()]
                at = each.end
        data = b"".join((*out, data[at:]))
        if len(found) < _FINDINGS_MAX:
            break
    return data.decode("utf-8", "surrogateescape")


def unescaped(data: bytes) -> bytes:
    """Return JSON with escapes replaced by spaces, line ends and quotes; every other byte stays at its place."""
    for escape, plain in _ESCAPES:
        data = data.replace(escape, plain)
    return data


def _spans(text: bytes) -> Iterator[tuple[int, int, str]]:
    at = text.find(b"-----BEGIN ")
    while at >= 0:
        if match := _PRIVATE.match(text, at):
            yield match.start(), match.end(), "private-key"
        at = text.find(b"-----BEGIN ", at + 10)
    for start in _starts(text):
        if (match := _FORMAT.match(text, start)) and not _PLACEHOLDER.search(match[0]):
            yield match.start(), match.end(), _KINDS[(match.lastindex or 1) - 1]
    at = text.find(b"@")  # rarer than "://", and a single byte is found fastest
    while at >= 0:
        place = text.rfind(b"://", max(0, at - _URL_MAX_BYTES), at)
        if place >= 0 and (match := _URL.search(text, max(0, place - 24), place + _URL_MAX_BYTES + 20)):
            secret = match[1]
            if not _PLACEHOLDER.search(secret) and not _UUID.match(secret):
                yield match.start(1), match.end(1), "url-password"
        at = text.find(b"@", at + 1)
    lower = text.lower()
    yield from _credentials(text, lower)
    for word in _WORDS:
        at = lower.find(word)
        while at >= 0:
            at += len(word)
            if match := _VALUE.match(text, at):
                if (word != b"key" or _KEY.search(lower, at - 16, at - 3)) and (kind := _judge(match, word)):
                    yield match.start(2), match.end(2), kind
            elif (match := _AFTER_FLAG.match(text, at)) and _is_of_flag(match, lower, at, word):
                yield match.start(1), match.end(1), "password" if word in _PASSWORDS else "assigned-secret"
            at = lower.find(word, at)


def _credentials(text: bytes, lower: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield what follows `Authorization: Bearer`, and passwords of `curl -u`, `sshpass -p` and `mysql -p`."""
    at = lower.find(b"uthorization")
    while at >= 0:
        if (match := _HEADER.match(text, at)) and not _PLACEHOLDER.search(match[1]) and _DIGIT.search(match[1]):
            yield match.start(1), match.end(1), "authorization"
        at = lower.find(b"uthorization", at + 12)
    at = text.find(b"curl ")
    while at >= 0:
        if (match := _CURL.match(text, at)) and match[1] != match[2] and not _PLACEHOLDER.search(match[2]):
            yield match.start(2), match.end(2), "password"
        at = text.find(b"curl ", at + 5)
    for program, pattern in ((b"sshpass ", _SSHPASS), (b"mysql", _MYSQL)):
        at = text.find(program)
        while at >= 0:
            if (match := pattern.match(text, at)) and not _PLACEHOLDER.search(match[1]):
                yield match.start(1), match.end(1), "password"
            at = text.find(program, at + 5)


def _starts(text: bytes) -> Iterator[int]:
    """Yield where words begin that have a run of letters and digits long enough for a key."""
    runs, words = text.translate(_RUNS), text.translate(_WORD_CHARS)
    at = runs.find(_NEEDLE)
    while at >= 0:
        end = runs.find(b" ", at)
        end = len(text) if end < 0 else end
        run = text[at : min(end, at + _ALPHA_BYTES)]
        if len(run) >= _ALPHA_BYTES or not run.isalpha() or run.isupper():
            yield words.rfind(b" ", 0, at) + 1
        at = runs.find(_NEEDLE, end)
    for known in _SHORT_RUNS:
        at = text.find(known)
        while at >= 0:
            yield at
            at = text.find(known, at + 4)


def _judge(match: re.Match[bytes], word: bytes) -> str:
    """Return the kind of secret that is assigned to a telling name; empty if it is none."""
    quote, value = match[1].strip(b"bru"), match[2]
    if (quote and not match[3]) or not (_DIGIT.search(value) and _LETTER.search(value)):
        return ""
    if _PLACEHOLDER.search(value) or _UUID.match(value) or _CODE.search(value):
        return ""
    if word in _PASSWORDS:
        is_assigned = quote or b"=" in match[0][: match.start(2) - match.start()]
        return "password" if is_assigned or _is_plain_value(match, value) else ""
    is_random = len(value) >= (24 if _HEX.match(value) else 16) and _entropy(value) >= 3.3 and not _is_counted(value)
    return "assigned-secret" if is_random else ""


def _is_of_flag(match: re.Match[bytes], lower: bytes, at: int, word: bytes) -> bool:
    """Whether a value is that of an option such as `--password`, without `=`, and may be a secret."""
    value = match[1]
    if not _FLAG.search(lower, max(0, at - len(word) - _FLAG_BYTES), at - len(word)):
        return False
    if not (_DIGIT.search(value) and _LETTER.search(value)) or _PLACEHOLDER.search(value) or _CODE.search(value):
        return False
    return word in _PASSWORDS or (len(value) >= 16 and _entropy(value) >= 3.3 and not _is_counted(value))


def _is_plain_value(match: re.Match[bytes], value: bytes) -> bool:
    """Whether `password: value` is written as in YAML, and not a type or a call of code."""
    after = match.string[match.end(2) : match.end(2) + 1]
    return (not after or after in _ENDS) and not _NAME.match(value)


def _is_counted(value: bytes) -> bool:
    """Whether a value looks like words or a version and not random: the kind of character rarely changes."""
    changes = sum(
        one.isdigit() != other.isdigit() or one.isupper() != other.isupper()
        for one, other in zip(map(chr, value), map(chr, value[1:]), strict=False)
    )
    return changes * 5 < len(value)


def _entropy(value: bytes) -> float:
    """Return the entropy of the characters of a value, in bits a character."""
    size = len(value)
    return -sum(value.count(each) / size * log2(value.count(each) / size) for each in set(value))


def _is_allowed(text: bytes, at: int) -> bool:
    """Whether a comment in the line says that this is no secret."""
    start, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
    start, end = max(start, at - WINDOW_MAX_BYTES), min(end if end >= 0 else len(text), at + WINDOW_MAX_BYTES)
    return bool(_ALLOWED.search(text, start, end))


def _mask(text: bytes, start: int, end: int, kind: str) -> str:
    known = text[start : start + 4].decode("ascii", "replace") if kind in _KINDS else ""
    return f"{known}… ({end - start} characters)"
