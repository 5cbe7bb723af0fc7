"""A real S3 server on this machine, which counts its requests and fails on demand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest


class Faulty:
    """The server, with every request counted, and refused where that is wished.

    `refuses` is asked before each request, with its number: what it returns is the answer instead. It may do something
    else first, such as a whole save by somebody else. `loses` says whose answers are lost on the way.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._conditional = threading.Lock()
        self.requests: list[str] = []
        self.calm()

    def calm(self) -> None:
        """Answer everything from now on."""
        self.refuses: Callable[[int, str], str] = lambda number, what: ""
        self.loses: Callable[[str], bool] = lambda what: False

    def once(self, word: str, act: Callable[[], Any]) -> None:
        """Do something just before the first request that has a word in it is answered."""
        done = threading.Event()

        def refuses(number: int, what: str) -> str:
            if word in what and not done.is_set():
                done.set()
                act()
            return ""

        self.refuses = refuses

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        what = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ.get('QUERY_STRING', '')}"
        self.requests.append(what)
        status = self.refuses(len(self.requests), what)
        if not status and self.loses(what):
            list(self._do(environ, lambda *args: None))
            start_response("503 Slow Down", [("Content-Length", "0")])
            return [b""]
        if status:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response(status, [("Content-Length", "0")])
            return [b""]
        return self._do(environ, start_response)

    def _do(self, environ: dict[str, Any], start_response: Any) -> Any:
        """One write on a condition at a time: S3 looks and writes in one step, this server in two."""
        if "HTTP_IF_NONE_MATCH" in environ or "HTTP_IF_MATCH" in environ:
            with self._conditional:
                return self._app(environ, start_response)
        return self._app(environ, start_response)


@pytest.fixture(scope="session")
def server() -> Iterator[tuple[Faulty, str]]:
    from moto import server as moto_server
    from werkzeug.serving import make_server

    app = Faulty(moto_server.DomainDispatcherApplication(moto_server.create_backend_app))
    http = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    yield app, f"http://127.0.0.1:{http.server_port}"
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.fixture
def url(server: tuple[Faulty, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    import boto3

    app, endpoint = server
    app.calm()
    settings = {
        "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true",
    }  # fmt: skip
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    bucket = f"bucket-{time.monotonic_ns()}"
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=bucket)
    app.requests.clear()
    yield f"s3://{bucket}/runs/exp1"
    app.calm()
