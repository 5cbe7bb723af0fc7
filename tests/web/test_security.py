"""Who may ask for a page, and for what."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient  # noqa: F401  # marks these tests

from cases.people import needs_root, run_as
from holdfast.web.app import ACTIONS, PAGES
from holdfast.web.security import BODY_MAX_BYTES
from holdfast.workspace import Workspace

from .conftest import PORT, Pages, make_pages
from .crawling import crawl
from .sessions import Session

ORIGIN = {"origin": f"http://127.0.0.1:{PORT}"}


@pytest.fixture
def stranger(workspace: Workspace, environ: dict[str, str]) -> Pages:
    return make_pages(workspace, environ, enter=False)


class TestToken:
    def test_a_stranger_gets_nothing(self, stranger: Pages) -> None:
        for path in ("/home", f"/w/{stranger.key}/timeline", "/static/page.css", f"/w/{stranger.key}/events", "/nope"):
            answer = stranger.client.get(path)
            assert answer.status_code == 401
            assert "shop" not in answer.text

    def test_a_wrong_token_gets_nothing(self, stranger: Pages) -> None:
        assert stranger.client.get("/home", params={"token": "x" * 43}).status_code == 401
        assert stranger.client.get("/home?token=%80%C3%A4").status_code == 401

    def test_the_token_becomes_a_strict_cookie(self, stranger: Pages) -> None:
        answer = stranger.client.get(
            "/home", params={"token": stranger.site.keys.token, "a": "1"}, follow_redirects=False
        )
        assert answer.status_code == 303
        assert answer.headers["location"] == "/home?a=1"
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert stranger.site.keys.token not in answer.headers["set-cookie"]

    def test_the_token_leads_to_no_other_host(self, stranger: Pages) -> None:
        answer = stranger.client.get(
            f"http://127.0.0.1:{PORT}//evil.example/?token={stranger.site.keys.token}", follow_redirects=False
        )
        assert not answer.headers["location"].startswith("//")

    def test_a_stranger_gets_no_page_at_all(self, stranger: Pages) -> None:
        for page in PAGES:
            for suffix in ("", ".json"):
                path = page.replace("{key}", stranger.key).replace("{ref}", "latest") + suffix
                assert stranger.client.get(path).status_code == 401, path

    @needs_root
    def test_another_user_gets_nothing(self, session: Session, environ: dict[str, str]) -> None:
        call = [sys.executable, "-m", "holdfast.cli", "ui", "--no-open"]
        run = subprocess.Popen(call, cwd=session.project, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert run.stdout is not None
        try:
            address = urlsplit(run.stdout.readline().decode().strip())
            token = address.query.partition("=")[2].encode()

            "".encode("idna")  # a connection needs it, and another user may not be able to read Python's own files

            def look() -> None:
                for path in (address.path, "/home", "/home.json", "/static/page.css", f"{address.path}?token=x"):
                    client = HTTPConnection("127.0.0.1", address.port or 0, timeout=60)
                    client.request("GET", path)
                    answer = client.getresponse()
                    assert answer.status == 401
                    assert b"shop" not in answer.read()
                proc = Path(f"/proc/{run.pid}")
                assert token not in (proc / "cmdline").read_bytes()
                for secret in ("environ", "fd", "mem", "maps"):
                    with pytest.raises(PermissionError):
                        os.listdir(proc / secret) if secret == "fd" else (proc / secret).read_bytes()

            run_as("somebody", look)
        finally:
            run.send_signal(signal.SIGINT)
            run.communicate(timeout=60)


class TestOtherSites:
    @pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", ""])
    def test_a_foreign_host_is_refused(self, pages: Pages, host: str) -> None:
        answer = pages.client.get("/home", headers={"host": host})
        assert answer.status_code == 421

    @pytest.mark.parametrize("origin", ["http://evil.example", "null", f"https://127.0.0.1:{PORT}", "http://127.0.0.1"])
    def test_a_foreign_origin_is_refused(self, pages: Pages, origin: str) -> None:
        assert pages.client.get("/home", headers={"origin": origin}).status_code == 403
        assert pages.post("undo", headers={"origin": origin}).status_code == 403

    def test_a_request_from_another_site_is_refused(self, pages: Pages) -> None:
        for site in ("cross-site", "same-site"):
            assert pages.client.get("/home", headers={"sec-fetch-site": site}).status_code == 403

    def test_a_post_needs_an_origin(self, pages: Pages) -> None:
        data = {"csrf": pages.site.keys.csrf}
        assert pages.client.post(f"/w/{pages.key}/undo", data=data).status_code == 403

    def test_a_post_needs_the_token_of_a_page(self, pages: Pages) -> None:
        assert pages.post("undo", {"csrf": "wrong"}).status_code == 400
        assert pages.post("undo", {"csrf": ""}).status_code == 400

    def test_every_action_needs_an_origin_and_the_token_of_a_page(self, pages: Pages, workspace: Workspace) -> None:
        before = workspace.list(None, safety=True)
        for action in ACTIONS:
            for suffix in ("", ".json"):
                path = action.replace("{key}", pages.key) + suffix
                data = {"csrf": pages.site.keys.csrf}
                assert pages.client.post(path, data=data).status_code == 403, path
                assert pages.client.post(path, data={"csrf": "wrong"}, headers=ORIGIN).status_code == 400, path
                assert pages.client.get(path).status_code in (404, 405), path
        assert workspace.list(None, safety=True) == before

    def test_a_change_by_get_is_not_possible(self, pages: Pages) -> None:
        for path in ("apply", "undo", "redo"):
            assert pages.get(path).status_code in (404, 405)
        for method in ("PUT", "DELETE", "PATCH"):
            headers = {"origin": f"http://127.0.0.1:{PORT}"}
            assert pages.client.request(method, "/home", headers=headers).status_code == 403

    def test_a_large_body_is_not_read(self, pages: Pages) -> None:
        with pytest.raises(Exception):  # noqa: B017  # whatever the server makes of a connection that ends
            pages.post("undo", {"x": "y" * (BODY_MAX_BYTES + 1)}).raise_for_status()


class TestReadOnly:
    def test_every_change_is_refused(self, workspace: Workspace, environ: dict[str, str]) -> None:
        pages = make_pages(workspace, environ, read_only=True)
        before = workspace.list(None, safety=True)
        for action in ACTIONS:
            for suffix in ("", ".json"):
                path = action.replace("{key}", pages.key) + suffix
                answer = pages.client.post(path, data={"csrf": pages.site.keys.csrf}, headers=ORIGIN)
                assert answer.status_code == 403, path
                assert "read-only" in answer.text
        assert workspace.list(None, safety=True) == before

    def test_no_page_offers_a_change(self, workspace: Workspace, environ: dict[str, str]) -> None:
        pages = make_pages(workspace, environ, read_only=True)
        for url in crawl(pages.client, f"/w/{pages.key}/timeline"):
            if "/static/" not in url and "/raw" not in url and ".json" not in url:
                text = pages.client.get(url).text
                assert "read-only" in text or "fragment" in url, url
                assert 'method="post"' not in text, url
                assert "data-plan" not in text, url


class TestHeaders:
    def test_every_response_has_them(self, pages: Pages, stranger: Pages) -> None:
        for answer in (pages.get("timeline"), pages.get("nope"), stranger.client.get("/home")):
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"

    def test_no_page_has_script_or_style_of_its_own(self, pages: Pages, workspace: Workspace) -> None:
        newest = workspace.list(1)[0].id
        for path in ("timeline", f"turn/{newest}", "compare", "files", "search?q=a", "coverage", "usage"):
            text = pages.client.get(f"/w/{pages.key}/{path}").text
            assert not re.search(r"<script(?! src=\"/static/)|<style|\sstyle=|\son[a-z]+=|javascript:|https?://", text)


HOSTILE = "<img src=x onerror=alert(1)>\"'&\u202e\u2066\x1b[31m\x07"


class TestHostileText:
    def test_names_messages_and_contents_are_escaped(self, pages: Pages, workspace: Workspace) -> None:
        name = "a<b>\u202e\x1b[2J'\"&.py"
        (workspace.path / name).write_text(f"x = '{HOSTILE}'\n")
        (workspace.path / os_name()).write_bytes(b"not text: \xff\xfe\n")
        saved = workspace.save(HOSTILE, session=HOSTILE, state={"conversation": [{"role": "user", "content": HOSTILE}]})
        urls = ["timeline", f"turn/{saved.id}", "compare?a=baseline", "files", "search?q=onerror", "usage", "coverage"]
        for path in urls:
            text = pages.client.get(f"/w/{pages.key}/{path}").text
            assert "<img src=x" not in text
            assert "<b>\\u202e" not in text
            assert not set("\u202e\u2066\x1b\x07") & set(text), path

    def test_a_path_of_any_bytes_is_found_again(self, pages: Pages, workspace: Workspace) -> None:
        name = "\n" * 200 + "\udcff&=%+ #?"
        (workspace.path / name).write_text("hello\n")
        saved = workspace.save("odd")
        turn = pages.get(f"turn/{saved.id}").text
        link = re.search(r'href="(/w/[^"]*/history\?path=%0A[^"]*)"', turn)
        assert link
        found = pages.client.get(link[1].replace("&amp;", "&"))
        assert found.status_code == 200
        assert "odd" in found.text

    def test_an_svg_is_never_served_as_a_picture(self, pages: Pages, workspace: Workspace) -> None:
        (workspace.path / "x.png").write_text("<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>")
        workspace.save("svg")
        answer = pages.get("raw", path="x.png")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"] == "attachment"
        assert "sandbox" in answer.headers["content-security-policy"]


def os_name() -> str:
    return "bytes \udcff\udcfe.txt"


def test_holdfast_itself_loads_nothing_of_it() -> None:
    code = "import sys, holdfast.cli.main; print({'starlette', 'uvicorn', 'jinja2', 'pygments'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
