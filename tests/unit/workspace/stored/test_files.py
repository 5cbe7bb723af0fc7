"""One path of a checkpoint."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from holdfast import NotFound, Refused, Workspace

if TYPE_CHECKING:
    from unit.workspace.conftest import Project


def test_the_bytes_are_exact(ws: Workspace, project: Project) -> None:
    data = bytes(range(256)) * 3
    project.write("sub/b.bin", data)
    ws.save()
    project.write("sub/b.bin", b"other")
    found = ws.file("latest", "sub/b.bin")
    assert (found.read(), found.size_bytes, found.is_folder) == (data, len(data), False)


def test_a_file_in_parts_is_read_piece_by_piece(ws: Workspace, project: Project) -> None:
    data = os.urandom(9_000_000)
    project.write("large", data)
    ws.save()
    found = ws.file("latest", "large")
    pieces = list(found.chunks())
    assert len(pieces) > 1 and b"".join(pieces) == data and found.size_bytes == len(data)


def test_a_link_has_its_target(ws: Workspace, project: Project) -> None:
    os.symlink("nowhere", project.root / "link")
    ws.save()
    found = ws.file("latest", "link")
    assert found.is_link and found.read() == b"nowhere"


def test_a_folder_has_names_and_no_content(ws: Workspace, project: Project) -> None:
    project.write("sub/a")
    project.write("sub/deep/b")
    ws.save()
    found = ws.file("latest", "sub")
    assert found.names == ("a", "deep/")
    assert ws.file("latest", ".").names == ("sub/",)
    with pytest.raises(Refused, match="sub is a folder"):
        found.chunks()


def test_a_path_that_is_not_there(ws: Workspace, project: Project) -> None:
    ws.save(allow_empty=True)
    with pytest.raises(NotFound, match="a1 does not contain nothing"):
        ws.file("latest", "nothing")
    with pytest.raises(Refused, match="outside"):
        ws.file("latest", "../up")


def test_why_it_is_not_contained(ws: Workspace, project: Project) -> None:
    project.write(".holdfastignore", b"secret\n")
    project.write("secret/key")
    ws.save()
    with pytest.raises(NotFound, match="secret is not contained"):
        ws.file("latest", "secret/key")
