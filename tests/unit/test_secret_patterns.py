"""Finding keys and passwords in text."""

from __future__ import annotations

import json
import random
import string

import pytest

from holdfast.secret_patterns import find_secrets, redact

ALNUM = string.ascii_letters + string.digits
RNG = random.Random(3)


def body(count: int, alphabet: str = ALNUM) -> str:
    return "".join(RNG.choices(alphabet, k=count))


KEYS = {
    "aws-access-key": "AKIA" + body(16, string.ascii_uppercase + "234567"),
    "github-token": "ghp_" + body(36),
    "slack-token": "xoxb-" + body(12, string.digits) + "-" + body(12, string.digits) + "-" + body(24),
    "stripe-key": "sk_live_" + body(24),
    "anthropic-key": "sk-ant-api03-" + body(93, ALNUM + "-_") + "AA",
    "openai-key": "sk-proj-" + body(74, ALNUM + "-_") + "T3BlbkFJ" + body(74, ALNUM + "-_"),
    "google-key": "AIza" + body(35, ALNUM + "-_"),
    "npm-token": "npm_" + body(36),
    "ai-provider-key": "sk-or-v1-" + body(64, "0123456789abcdef"),
    "cloud-token": "dop_v1_" + body(64, "0123456789abcdef"),
    "service-token": "lin_api_" + body(40),
    "age-key": "AGE-SECRET-KEY-1" + body(58, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"),
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0." + body(43, ALNUM + "-_"),
    "private-key": f"-----BEGIN RSA PRIVATE KEY-----\n{body(64)}\n{body(64)}\n-----END RSA PRIVATE KEY-----",
}


@pytest.mark.parametrize("kind", KEYS)
def test_known_formats_are_found(kind: str) -> None:
    text = f"import os\nvalue = '{KEYS[kind]}'\n".encode()
    (found,) = find_secrets(text)
    assert (found.kind, found.line) == (kind, 2)
    assert text[found.start : found.end].decode() == KEYS[kind]
    assert KEYS[kind][5:] not in found.masked


@pytest.mark.parametrize("kind", KEYS)
def test_known_formats_are_found_in_json(kind: str) -> None:
    text = json.dumps({"text": json.dumps(f"first line\n{KEYS[kind]}\nlast")}).encode()
    assert [each.kind for each in find_secrets(text, is_json=True)] == [kind]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (f"postgres://app:{body(12)}9@db:5432/x", "url-password"),
        (f"API_SECRET={body(40, '0123456789abcdef')}", "assigned-secret"),
        (f'"client_secret": "{body(40)}7aB"', "assigned-secret"),
        ('DB_PASSWORD="tr0ub4dor&3x"', "password"),
        ("  password: tr0ub4dor&3x", "password"),
        (f"Authorization: Bearer {body(30)}7", "authorization"),
        (f"curl -H 'authorization: Basic {body(30)}7=='", "authorization"),
        ("curl -s -u admin:tr0ub4dor https://host/", "password"),
        ("sshpass -p tr0ub4dor ssh host", "password"),
        ("mysql -u root -ptr0ub4dor shop", "password"),
        ("mysqldump -ptr0ub4dor shop", "password"),
        ("deploy --db-password tr0ub4dor3 --now", "password"),
        ("machine host login me password tr0ub4dor3", "password"),
        (f"npm publish --token {body(30)}7", "assigned-secret"),
        (f"https://discord.com/api/webhooks/987650123498765012/{body(67)}7", "discord-webhook"),
        (f"xai-{body(79)}7", "ai-provider-key"),
        (f"hvs.{body(89)}7", "cloud-token"),
        ("curl https://host/ --user='admin:tr0ub4dor'", "password"),
    ],
)
def test_values_of_telling_names_are_found(line: str, kind: str) -> None:
    assert [each.kind for each in find_secrets(f"# x\n{line}\n".encode())] == [kind]


@pytest.mark.parametrize(
    "line",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "postgres://user:password@localhost/db",
        "postgres://app:${DB_PASSWORD}@localhost/db",
        "password = os.environ['DB_PASSWORD']",
        'api_key = "your-api-key-goes-here-1"',
        "token: 550e8400-e29b-41d4-a716-446655440000",
        "sha256:" + body(64, "0123456789abcdef"),
        "integrity sha512-" + body(86, ALNUM + "+/") + "==",
        "-----BEGIN PRIVATE KEY-----",
        "Authorization: Bearer $TOKEN_1",
        "Authorization: Bearer your-token-goes-here-1",
        "curl -u user:password https://host/",
        "curl -u $NAME:$PASSWORD1 https://host/",
        "def hash(password: bytes32, pwd: sha256) -> None",
        "password: base64decode(value1)",
        "max_tokens = config.model_max_length_2048",
        "def test_password_is_checked_for_user_1234(): pass",
    ],
)
def test_what_is_no_secret(line: str) -> None:
    assert find_secrets(f"# x\n{line}\n".encode()) == []


def test_a_comment_allows_a_line() -> None:
    text = f"a = '{KEYS['github-token']}'  # gitleaks:allow\n".encode()
    assert find_secrets(text) == []


def test_redacted_text_contains_no_secret() -> None:
    text = json.dumps([f"use {key}\nplease" for key in KEYS.values()])
    done = redact(text)
    assert json.loads(done) and find_secrets(done.encode(), is_json=True) == []
    assert not any(json.dumps(key)[1:-1] in done for key in KEYS.values()) and "[redacted github-token]" in done


def test_more_secrets_than_are_listed_are_redacted() -> None:
    text = "\n".join(f"ghp_{body(36)}" for _ in range(250))
    assert redact(text).count("[redacted github-token]") == 250 and "ghp_" not in redact(text)


def test_hostile_texts_take_linear_time() -> None:
    for text in (
        b"a" * 300_000,
        b"password=" * 30_000,
        b"://x:" * 50_000,
        b"eyJ" + b"-" * 300_000,
        b"-----BEGIN " * 20_000,
    ):
        find_secrets(text, is_json=True)


@pytest.mark.parametrize("depth", range(4))
def test_json_inside_of_json_is_redacted(depth: int) -> None:
    """Agents write the arguments and results of tools as text into their conversations."""
    secrets = {"password": "S3cr3tPass99x", "api_key": "q8Zk3LmN0pQr7StUv2Wx"}
    text = json.dumps(secrets)
    for _ in range(depth):
        text = json.dumps({"text": text})
    redacted = redact(text)
    assert not any(secret in redacted for secret in secrets.values())
    json.loads(redacted)
