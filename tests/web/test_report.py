"""`holdfast report`: one file, and no secret in it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.testclient import TestClient  # noqa: F401  # marks these tests

from holdfast.errors import NotFound
from holdfast.web.report import make_report
from holdfast.workspace import Workspace

from .sessions import Session

TOKEN = "ghp_" + "A1b2C3d4E5f6G7h8I9j0" + "K1l2M3n4O5p6Q7r8"
PEM = "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----\n"
BODY = "\n".join(f"MIIEpAIBAAKCAQEA{number:02}x9Yz8Wv7Ut6Sr5Qp4On3Ml2Kj1Ih0GfEdCbA" for number in range(12))


def test_a_session_in_one_file(session: Session, workspace: Workspace) -> None:
    made = make_report(workspace, session.name)
    assert made.turns == 2
    figures = re.findall(r"<dt>([^<]*)</dt><dd>(.*?)</dd>", made.html)
    assert {name: re.sub("<[^>]*>", "", value) for name, value in figures} == {
        "turns": "2", "checkpoints": "5", "files changed": "5", "lines": "+15 −4", "tool calls": "6",
    }  # fmt: skip
    assert "The cart ignores the discount" in made.html
    assert "I will look at src/cart.py first." in made.html
    assert "len" in made.html
    assert made.html.index("The cart ignores") < made.html.index("Add a --json option")
    assert "kronor" not in made.html  # a save of the person, not of the session
    assert not re.search(r"<script|<link|<img|\ssrc=|\shref=|url\(", made.html)


def test_secrets_are_redacted_everywhere(session: Session, workspace: Workspace) -> None:
    session.prompt(f"Use the token {TOKEN} to deploy.")
    session.say("assistant", {"type": "text", "text": f"I will write {TOKEN} to deploy.env."})
    session.write("deploy.env", f"TOKEN={TOKEN}\nMODE=1\n")
    session.write("key.pem", PEM.format(BODY))
    changed = BODY.splitlines()
    changed[6] = changed[6].replace("x9Yz8", "y8Xw7")
    session.write("key.pem", PEM.format("\n".join(changed)))
    made = make_report(workspace, session.name)
    assert TOKEN not in made.html
    assert not [line for line in [*BODY.splitlines(), changed[6]] if line in made.html]
    assert {each.kind for each in made.redacted} >= {"github-token", "private-key"}
    assert "[redacted github-token]" in made.html
    assert "secrets redacted" in made.html
    assert all(TOKEN not in each.masked for each in made.redacted)


def test_a_secret_at_the_end_of_what_is_shown(session: Session, workspace: Workspace) -> None:
    session.prompt("Say much.")
    session.say("assistant", {"type": "text", "text": "x " * 9_990 + TOKEN})
    session.write("notes.txt", "done\n")
    html = make_report(workspace, session.name).html
    assert TOKEN[:16] not in html


def test_a_hunk_within_a_key_is_redacted(session: Session, workspace: Workspace) -> None:
    """The lines of a change alone do not look like a key: the whole file does."""
    session.prompt("Make a key.")
    session.write("key.pem", PEM.format(BODY))
    session.prompt("Change it.")
    lines = BODY.splitlines()
    lines[6] = "MIIEpAIBAAKCAQEAchangedchangedchanged0123456789abcdef"
    session.write("key.pem", PEM.format("\n".join(lines)))
    made = make_report(workspace, session.name)
    assert lines[6] not in made.html
    assert lines[5] not in made.html


def test_hostile_text_is_escaped(session: Session, workspace: Workspace) -> None:
    session.prompt("</style><script>alert(1)</script>\u202e")
    session.write("<b>.txt", "</script><img src=x>\x1b[31m\n")
    html = make_report(workspace, session.name).html
    assert "<script>" not in html
    assert "<img" not in html
    assert not set("\u202e\x1b") & set(html)


def test_the_command(session: Session, environ: dict[str, str], tmp_path: Path) -> None:
    call = [sys.executable, "-m", "holdfast.cli", "report", session.name, "-o", str(tmp_path / "out.html"), "--json"]
    done = subprocess.run(call, cwd=session.project, env=environ, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"file": str(tmp_path / "out.html"), "turns": 2, "redacted": []}
    written = (tmp_path / "out.html").read_bytes()
    again = subprocess.run(call, cwd=session.project, env=environ, capture_output=True)
    assert again.returncode == 4
    assert (tmp_path / "out.html").read_bytes() == written


def test_a_session_that_is_not_there(workspace: Workspace) -> None:
    with pytest.raises(NotFound):
        make_report(workspace, "nope")
