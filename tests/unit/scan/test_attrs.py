"""What git cannot say of an entry: written as text, read back, taken from the disk."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from holdfast.errors import Damaged
from holdfast.scan.attrs import Attr, decode, encode_line, extras_of, is_kept_xattr


def extras(path: Path, owner: tuple[int, int] | None = None) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        status = os.fstat(fd)
        return extras_of(fd, status, owner or (status.st_uid, status.st_gid))
    finally:
        os.close(fd)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    try:
        os.setxattr(path, "user.probe", b"")
        os.removexattr(path, "user.probe")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    return path


class TestText:
    @pytest.mark.parametrize(
        "name",
        [
            "plain",
            ".",
            "two words",
            " ",
            "a\nb",
            "\n",
            "%",
            "%0A",
            "%25",
            "%250A",
            "100%",
            "\\n",
            "caf\xe9",
            "\udcff\udc80",
        ],
    )
    def test_a_name_comes_back(self, name: str) -> None:
        line = encode_line(0o100600, 1_731_700_000_123_456_789, b"", name)
        assert line.count(b"\n") == 1
        assert decode(line) == {name: Attr(0o100600, 1_731_700_000_123_456_789, b"-")}

    def test_it_reads_as_the_format_says(self) -> None:
        assert encode_line(0o100644, -1, b"owner=0:0", "notes.txt") == b"100644 -1 owner=0:0 notes.txt\n"

    def test_many_lines_are_many_entries(self) -> None:
        names = ["b", "a", "a b", "."]
        text = b"".join(encode_line(0o100644, place, b"", name) for place, name in enumerate(names))
        assert {name: attr.mtime_ns for name, attr in decode(text).items()} == {"b": 0, "a": 1, "a b": 2, ".": 3}

    @pytest.mark.parametrize("text", [b"100644\n", b"100644 1 -\n", b"9 1 - name\n", b"100644 soon - name\n", b"\n"])
    def test_garbage_is_damage(self, text: bytes) -> None:
        with pytest.raises(Damaged):
            decode(text)


class TestAttr:
    def test_each_of_the_extras_is_told(self) -> None:
        attr = Attr(0o100644, 0, b"owner=1:2,sparse,xattr.user.a=YQ==,link=abc,parts=9000000")
        assert attr.owner == (1, 2)
        assert attr.is_sparse
        assert attr.xattrs == {"user.a": b"a"}
        assert attr.link == b"abc"
        assert attr.parts_bytes == 9_000_000

    def test_none_of_them_is_made_up(self) -> None:
        attr = Attr(0o100644, 0, b"-")
        assert (attr.owner, attr.is_sparse, attr.xattrs, attr.link, attr.parts_bytes) == (None, False, {}, None, None)
        assert attr.device == 0

    def test_a_value_is_not_taken_for_another_of_the_extras(self) -> None:
        attr = Attr(0o100644, 0, b"xattr.user.sparse=,xattr.user.link%3Dx=YQ==")
        assert not attr.is_sparse
        assert attr.link is None
        assert attr.xattrs == {"user.sparse": b"", "user.link=x": b"a"}

    def test_all_but_the_link_is_kept_without_it(self) -> None:
        assert Attr(1, 2, b"sparse,link=abc").without_link() == Attr(1, 2, b"sparse")
        assert Attr(1, 2, b"link=abc").without_link() == Attr(1, 2, b"-")


class TestExtrasOf:
    def test_an_ordinary_file_has_none(self, file: Path) -> None:
        assert extras(file) == b""

    def test_another_owner_is_told(self, file: Path) -> None:
        status = file.stat()
        told = extras(file, owner=(status.st_uid + 1, status.st_gid))
        assert Attr(0, 0, told).owner == (status.st_uid, status.st_gid)

    @pytest.mark.parametrize(
        "name", ["user.plain", "user.with space", "user.a,b=c", "user.100%", "user.%2C", "user.a\nb"]
    )
    @pytest.mark.parametrize("value", [b"", b"value", b"\0\xff,=\n ", bytes(range(256))])
    @pytest.mark.linux
    def test_an_attribute_comes_back_whatever_its_name_and_value(self, file: Path, name: str, value: bytes) -> None:
        os.setxattr(file, name, value)
        told = extras(file)
        assert not set(told) & set(b" \n")
        assert Attr(0, 0, told).xattrs == {name: value}

    @pytest.mark.linux
    def test_attributes_are_told_in_one_order(self, file: Path) -> None:
        for name in ("user.b", "user.a", "user.c"):
            os.setxattr(file, name, b"")
        assert extras(file) == b"xattr.user.a=,xattr.user.b=,xattr.user.c="

    def test_bookkeeping_of_the_system_is_not_kept(self) -> None:
        assert not is_kept_xattr("security.selinux")
        assert not is_kept_xattr("trusted.overlay.opaque")
        assert is_kept_xattr("user.tag")
        assert is_kept_xattr("security.capability")
        assert is_kept_xattr("system.posix_acl_access")

    def test_a_file_with_holes_is_told(self, tmp_path: Path) -> None:
        with open(tmp_path / "sparse", "wb") as file:
            file.truncate(1 << 20)
        assert extras(tmp_path / "sparse") == b"sparse"

    def test_the_number_of_a_device_is_told(self) -> None:
        status = os.stat("/dev/null")
        assert Attr(0, 0, extras_of(None, status, (status.st_uid, status.st_gid))).device == os.makedev(1, 3)

    def test_a_socket_has_none(self, tmp_path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "socket"))
            status = (tmp_path / "socket").stat()
            assert stat.S_ISSOCK(status.st_mode)
            assert extras_of(None, status, (status.st_uid, status.st_gid)) == b""
