"""Looking closer at a workspace: compare, files, history of a file, blame, search, coverage, usage."""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.errors import NotFound, Refused, Unavailable
from holdfast.location import Field
from holdfast.model import BlamedLine, Checkpoint, Match, Reason, documents
from holdfast.validation import check_path
from holdfast.web.answers import Answer, query_of, site_of, wants_json
from holdfast.web.diff_view import NOW, image_type, view_changes
from holdfast.web.jobs import WAIT_S, Job
from holdfast.web.live import newest_id
from holdfast.web.location_process import Tell
from holdfast.web.rendering import address
from holdfast.web.syntax import colour_lines
from holdfast.web.take_back import banner
from holdfast.workspace import Workspace
from holdfast.workspace.blame import read_now
from holdfast.workspace.location import WorkspaceLocation
from holdfast.workspace.pathspec import inside, literal
from holdfast.workspace.upkeep.growth import pack_bytes

_FILE_MAX_BYTES = 512 << 10
_FILE_MAX_LINES = 3_000
_BLAME_MAX_LINES = 3_000
_SEARCH_MAX = 200
_HISTORY_MAX = 200
_USAGE_SHOWN = 30
_ABANDONED_S = 30.0  # a page that is seen asks once a second
_IMAGE_MAX_BYTES = 20 << 20
_WHY = {
    Reason.EXCLUDED: "excluded by your rules",
    Reason.DEPENDENCIES: "dependencies or build output",
    Reason.IGNORED_LARGE: "ignored by git, and large",
    Reason.IGNORED_MANY: "ignored by git, and too much in all",
    Reason.GIT_DIRECTORY: "the folder of a git repository",
    Reason.OTHER_FILESYSTEM: "on another file system",
    Reason.SOCKET: "a socket: has no content",
    Reason.RULES_NOT_APPLIED: "saved, but its rules were not applied: too large",
    Reason.UNREADABLE: "could not be read",
    Reason.CHANGED: "changed while it was read",
    Reason.LIVE_DATABASE: "a database in use: may be inconsistent",
    Reason.NOTHING_HELD: "the rules exclude every file",
    Reason.PURGED: "purged from every checkpoint",
}
"""Why a checkpoint does not contain a path, in words."""


def compare(request: Request) -> Answer:
    """Two checkpoints, or a checkpoint and the folder as it is now."""
    place, workspace = site_of(request).places.workspace(request.path_params["key"])
    query = query_of(request)
    split, path = query.get("view") == "split", query.get("path")
    paths = [literal(path)] if path else None
    first, second = query.get("a") or "latest", query.get("b")
    second_ref = None if second in ("", NOW) else second

    def document() -> dict[str, Any]:
        return documents.diff(workspace.diff(first, second_ref, paths))

    if str(request.scope["path"]).endswith(".json"):
        return Answer("", {}, document)
    changes = workspace.changes(first, second_ref, paths)
    values = {
        "place": place,
        "changes": changes,
        "files": list(view_changes(workspace, changes, split=split)),
        "a": workspace.get(changes.from_id),
        "b": workspace.get(changes.to_id) if changes.to_id else None,
        "split": split,
        "only": path,
        "reviewed": workspace.reviewed(changes.to_id) if changes.to_id else frozenset(),
        "banner": banner(request, workspace, place.key),
    }
    return Answer("diff_fragment.html" if query.get("fragment") else "compare.html", values, document)


def files(request: Request) -> Answer:
    """A file or a folder of a checkpoint."""
    place, workspace = site_of(request).places.workspace(request.path_params["key"])
    query = query_of(request)
    checkpoint, path = workspace.get(query.get("ref") or "latest"), query.get("path").strip("/")
    found = workspace.file(checkpoint.id, path or ".")
    lines, note, is_image = None, "", False
    if not found.is_folder and found.size_bytes is not None:
        if found.size_bytes > _FILE_MAX_BYTES:
            head = next(iter(found.chunks()), b"")[:16]
            is_image = found.size_bytes <= _IMAGE_MAX_BYTES and image_type(head) is not None
            note = "" if is_image else "It is too large to be shown."
        else:
            data = found.read()
            is_image = image_type(data) is not None
            if not is_image and b"\0" in data[:8000]:
                note = "It is a binary file."
            elif not is_image:
                text = data.decode("utf-8", "surrogateescape").splitlines()
                lines = colour_lines(text[:_FILE_MAX_LINES], path)
                note = f"Only its first {_FILE_MAX_LINES:,} lines are shown." if len(text) > _FILE_MAX_LINES else ""
    values = {
        "place": place,
        "checkpoint": checkpoint,
        "file": found,
        "path_": path,
        "crumbs": _crumbs(path),
        "lines": lines,
        "note": note,
        "is_image": is_image,
        "mode": stat.filemode(found.mode),
        "banner": None,
    }

    def document() -> dict[str, Any]:
        names = list(found.names) if found.names is not None else None
        plain = {"checkpoint": checkpoint.id, "path": path, "mode": found.mode, "size_bytes": found.size_bytes}
        return plain | {"names": names, "is_link": found.is_link}

    return Answer("files.html", values, document)


def raw(request: Request) -> Response:
    """The content of a file: a picture, or a download."""
    _, workspace = site_of(request).places.workspace(request.path_params["key"])
    query = query_of(request)
    if query.get("ref") == NOW:
        return _raw_now(workspace, query.get("path"))
    found = workspace.file(query.get("ref") or "latest", query.get("path"))
    if found.size_bytes is None or found.is_link:
        raise Refused("there is no content to download", hint="Choose a file.")
    chunks = found.chunks()
    first = next(chunks, b"")
    kind = image_type(first[:16]) if found.size_bytes <= _IMAGE_MAX_BYTES else None
    headers = {"content-length": str(found.size_bytes)} | _raw_headers(kind)

    def body() -> Any:
        yield first
        yield from chunks

    return StreamingResponse(body(), headers=headers, media_type=kind or "application/octet-stream")


def _raw_now(workspace: Workspace, path: str) -> Response:
    """A picture of the folder as it is now."""
    name = inside(check_path(path, "path"), workspace.path)
    try:
        status, data = read_now(name, os.fspath(workspace.path))
    except OSError as error:
        raise Unavailable(f"{name} cannot be read: {os.strerror(error.errno or 0)}") from None
    if data is None or not stat.S_ISREG(status.st_mode):
        raise Refused("there is no content to show", hint="Save it, then look at the checkpoint.")
    kind = image_type(data[:16])
    return Response(data, headers=_raw_headers(kind), media_type=kind or "application/octet-stream")


def _raw_headers(kind: str | None) -> dict[str, str]:
    headers = {"content-security-policy": "sandbox; default-src 'none'"}
    return headers if kind else headers | {"content-disposition": "attachment"}


def history(request: Request) -> Answer:
    """The checkpoints that changed a file."""
    place, workspace = site_of(request).places.workspace(request.path_params["key"])
    query = query_of(request)
    path = _path(query.get("path"))
    before = query.get("before") or None
    page = WorkspaceLocation(workspace, {"paths": [literal(path)]}).list(_HISTORY_MAX, before)
    checkpoints = [workspace.get(item.id) for item in page.items]
    values = {"place": place, "path_": path, "checkpoints": checkpoints, "next": page.next, "banner": None}
    return Answer("history.html", values, lambda: {"items": [item.document for item in page.items], "next": page.next})


class BlameBlock(NamedTuple):
    """Successive lines of a file that came from one checkpoint."""

    checkpoint: Checkpoint | None
    who: str
    lines: list[tuple[int, Any]]


def blame(request: Request) -> Answer:
    """Who wrote each line of a file."""
    place, workspace = site_of(request).places.workspace(request.path_params["key"])
    query = query_of(request)
    path, ref = _path(query.get("path")), query.get("ref") or None
    found = workspace.blame(path, ref)
    coloured = colour_lines([line.text for line in found.lines[:_BLAME_MAX_LINES]], path)
    values = {
        "place": place,
        "path_": path,
        "ref": ref,
        "blame": found,
        "blocks": _blocks(found.lines[:_BLAME_MAX_LINES], coloured),
        "more": max(len(found.lines) - _BLAME_MAX_LINES, 0),
        "banner": None,
    }

    def document() -> dict[str, Any]:
        about = documents.blame(found)
        return {"items": about.pop("lines"), "next": None, **about}

    return Answer("blame.html", values, document)


def _blocks(lines: Any, coloured: list[Any]) -> list[BlameBlock]:
    blocks: list[BlameBlock] = []
    last: Any = None
    for line, text in zip(lines, coloured, strict=True):
        assert isinstance(line, BlamedLine)
        origin = line.origin
        key = (origin.checkpoint.id if origin.checkpoint else None, origin.actor)
        if key != last:
            blocks.append(BlameBlock(origin.checkpoint, str(origin.actor or "user"), []))
            last = key
        blocks[-1].lines.append((line.number, text))
    return blocks


def search(request: Request) -> Answer:
    """All contents of all checkpoints: from which one to which a text was there. The page shows what is found while it
    goes on."""
    site, query = site_of(request), query_of(request)
    place, workspace = site.places.workspace(request.path_params["key"])
    asked = {
        "text": query.get("q"),
        "path": query.get("path"),
        "regex": bool(query.get("regex")),
        "ignore_case": bool(query.get("ignore_case")),
        "limit": _SEARCH_MAX + 1,
    }

    def look(tell: Tell | None = None) -> list[Any]:
        found: list[Any] = site.places.ask_folder("search_folder", place.key, tell, **asked)
        return found

    def work(job: Job) -> list[Any]:
        def tell(name: str, told: Any) -> None:
            if name != "found":
                job.tell(*told)
            elif told not in job.found:  # the store changed, and it began again
                job.found.append(told)
            if job.unseen_s > _ABANDONED_S:
                raise Unavailable("nobody waited for this search any more", hint="Search again.")

        return look(tell)

    def document() -> dict[str, Any]:
        matches = _matches(workspace, look()) if asked["text"] else []
        items = [documents.match(each) for each in matches[:_SEARCH_MAX]]
        return {"items": items, "next": None, "more": len(matches) > _SEARCH_MAX}

    values: dict[str, Any] = {"place": place, "banner": None, "path_": asked["path"], "job": None}
    values |= {name: asked[name] for name in ("text", "regex", "ignore_case")}
    if asked["text"] and not wants_json(request):
        about = f"{newest_id(workspace)} {len(workspace.overview())}"
        job = site.jobs.start("search", place.key, json.dumps(asked), work=work, about=about)
        job.wait(WAIT_S)
        if job.error is not None:
            raise job.error
        found = sorted(job.found[:_SEARCH_MAX]) if job.result is None else job.result
        matches = _matches(workspace, found)
        values |= {"job": job, "matches": matches[:_SEARCH_MAX], "is_more": len(matches) > _SEARCH_MAX}
        address_ = {name: query.get(name) for name in ("q", "path", "regex", "ignore_case")}
        values["here_again"] = address("w", place.key, "search", fragment="1", **address_)
    return Answer("search_fragment.html" if query.get("fragment") else "search.html", values, document)


def _matches(workspace: Workspace, found: Sequence[Sequence[Any]]) -> list[Match]:
    """The matches that another process found; those whose checkpoint was deleted since are left out."""
    matches = []
    for path, line, excerpt, first, last, gone, in_folder in found:
        with suppress(NotFound):
            ends = (workspace.get(first), workspace.get(last), workspace.get(gone) if gone else None)
            matches.append(Match(path, line, excerpt, *ends, in_folder))
    return matches


def coverage(request: Request) -> Answer:
    """What a checkpoint does not contain, and why."""
    place, workspace = site_of(request).places.workspace(request.path_params["key"])
    checkpoint = workspace.get(query_of(request).get("ref") or "latest")
    reasons = Counter(each.reason for each in checkpoint.uncovered)
    values = {
        "place": place,
        "checkpoint": checkpoint,
        "reasons": reasons.most_common(),
        "words": _WHY,
        "uncovered": checkpoint.uncovered[:2_000],
        "more": max(len(checkpoint.uncovered) - 2_000, 0),
        "banner": None,
    }
    return Answer("coverage.html", values, lambda: {"checkpoint": documents.whole_checkpoint(checkpoint)})


def usage(request: Request) -> Answer:
    """What takes space, as a picture and as tables. With thousands of checkpoints it takes a while: the page waits."""
    site = site_of(request)
    place, workspace = site.places.workspace(request.path_params["key"])

    def measure(_: Job | None = None) -> dict[str, Any]:
        found: dict[str, Any] = site.places.ask_folder("usage", place.key, limit=_USAGE_SHOWN)
        return found

    def document() -> dict[str, Any]:
        report = measure()
        told: dict[str, Any] = report["document"]
        return told | {"items": report["items"], "next": None, "more": report["more"]}

    if wants_json(request):
        return Answer("", {}, document)
    # the size, too: a purge keeps every checkpoint
    about = f"{newest_id(workspace)} {len(workspace.overview())} {pack_bytes(workspace.store)}"
    job = site.jobs.start("usage", place.key, work=measure, about=about)
    job.wait(WAIT_S)
    if job.error is not None:
        raise job.error
    values: dict[str, Any] = {"place": place, "job": job, "banner": None}
    if job.result is not None:
        found = job.result
        items = []
        for each in found["items"]:
            with suppress(NotFound):  # deleted since
                items.append((workspace.get(each["id"]), each))
        fields = [Field(*each) for each in found["fields"]]
        values |= {
            "fields": [each for each in fields if each.value],
            "paths": found["document"]["paths"],
            "largest": max((each["bytes"] for each in found["document"]["paths"]), default=0),
            "items": items,
        }
    return Answer("usage_fragment.html" if query_of(request).get("fragment") else "usage.html", values, document)


def _path(text: str) -> str:
    if not text.strip("/"):
        raise NotFound("no file is named", hint="Choose one from a checkpoint.")
    return text.strip("/")


def _crumbs(path: str) -> list[tuple[str, str]]:
    """The folders above a path, each with its own path."""
    parts = path.split("/") if path else []
    return [(part, "/".join(parts[: at + 1])) for at, part in enumerate(parts)]
