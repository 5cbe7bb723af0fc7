"""A text is found and cut in every spelling that JSON, URLs and base64 give it, also within one another."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from holdfast.workspace.upkeep.secret_spellings import Needles, fold

PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQ/+IBADANBg\nkqhki+G9w0/BAQEF\nAAS==\n-----END PRIVATE KEY-----"
TEXTS = [
    PEM,
    "pässwort 😀 \\ \"quoted\" 'x' / 100%",
    "correct horse battery staple",
    "тайный ключ\tи ещё",
    "C:\\new\\table\\u0041",
]


def _json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _json_utf8(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "JSON": _json,
    "JSON in UTF-8": _json_utf8,
    "JSON with slashes escaped": lambda text: _json(text).replace("/", "\\/"),
    "JSON with capital digits": lambda text: fold_case(_json(text)),
    "JSON twice": lambda text: _json(_json(text)),
    "JSON twice, slashes escaped": lambda text: _json(_json(text).replace("/", "\\/")).replace("/", "\\/"),
    "JSON in UTF-8 twice": lambda text: _json_utf8(_json_utf8(text)),
    "JSON three times": lambda text: _json(_json(_json(text))),
    "quote": quote,
    "quote without slashes": lambda text: quote(text, safe=""),
    "quote_plus": quote_plus,
    "lower hex": lambda text: lower_hex(quote(text, safe="")),
    "quote twice": lambda text: quote(quote(text, safe=""), safe=""),
    "JSON, then quote": lambda text: quote(_json(text), safe=""),
    "quote_plus, then JSON": lambda text: _json(quote_plus(text)),
    "other line ends": lambda text: text.replace("\n", "\r\n"),
    "base64": _base64,
    "base64 without padding": lambda text: _base64(text).rstrip("="),
    "urlsafe base64": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "base64 in a URL": lambda text: quote(_base64(text), safe=""),
    "base64 in JSON": lambda text: _base64(text).replace("/", "\\/"),
    "wrapped base64": lambda text: "\n".join(wrapped(_base64(text), 76)),
    "wrapped base64 in JSON": lambda text: _json("\n".join(wrapped(_base64(text), 64))),
    "base64 of more": lambda text: _base64(f"x={text}, and so on"),
    "base64 of still more": lambda text: _base64(f"KEY={text}!"),
}


def lower_hex(text: str) -> str:
    return "".join(f"%{part[:2].lower()}{part[2:]}" if at else part for at, part in enumerate(text.split("%")))


def fold_case(text: str) -> str:
    return "".join(f"\\u{part[:4].upper()}{part[4:]}" if at else part for at, part in enumerate(text.split("\\u")))


def wrapped(text: str, width: int) -> list[str]:
    return [text[at : at + width] for at in range(0, len(text), width)]


@pytest.fixture(params=[0, 500], ids=["few", "many"])
def needles(request: pytest.FixtureRequest) -> Needles:
    others = [f"another-{number:06}-word" for number in range(request.param)]
    return Needles([*TEXTS, *others], [text.encode() for text in TEXTS])


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_every_spelling_is_found_and_cut(needles: Needles, text: str, spelling: str) -> None:
    spelled = SPELLINGS[spelling](text)
    around = f'{{"before": "{spelled}", "after": 1}}'
    assert needles.may_be_in(around.encode())
    assert needles.is_in(around.encode())
    cut = needles.cut(around, "[purged]")
    assert not needles.is_in_text(cut)
    assert cut.startswith('{"before": "') and cut.endswith('", "after": 1}')
    if not spelling.startswith("base64 of"):
        assert cut == '{"before": "[purged]", "after": 1}'


@pytest.mark.parametrize(
    "text", ["nothing of it", "correct horse battery", "-----BEGIN PRIVATE KEY-----\nMIIEvQ", "100%"]
)
def test_less_than_all_of_it_is_not_found(needles: Needles, text: str) -> None:
    assert not needles.is_in_text(text)
    assert needles.cut(text, "[purged]") == text


def test_what_is_around_stays_to_the_character(needles: Needles) -> None:
    before, after = "é\\n\r\n%41%zz\\\\ 😀+ ", '\\\\"\r\n%25 \\u00e9 '
    assert needles.cut(before + _json(TEXTS[2]) + after, "X") == before + "X" + after


def test_folding_again_changes_nothing_in_the_texts() -> None:
    for text in TEXTS:
        assert {fold(spell(text)) for name, spell in SPELLINGS.items() if "base64" not in name} == {fold(text)}
