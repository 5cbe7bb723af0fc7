"""Content: the bytes on disk are the bytes in the checkpoint, whatever git's attributes and filters would do."""

from __future__ import annotations

import os

import pytest

from .harness import Case, run_python

CONVERTING_ATTRIBUTES = [
    "* text=auto\n",
    "* text eol=lf\n",
    "* text eol=crlf\n",
    "* ident\n",
    "* working-tree-encoding=UTF-16\n",
    "* export-subst\n",
    "* filter=lfs diff=lfs merge=lfs -text\n",
]

AWKWARD = {
    "crlf.txt": b"one\r\ntwo\r\n",
    "mixed.txt": b"one\r\ntwo\nthree\rfour",
    "cr.txt": b"lone\rcarriage\rreturns\r",
    "id.c": b"/* $Id$ $Id: 0123 $ $Format:%H$ */\n",
    "utf16.txt": "täxt\r\n".encode("utf-16"),
    "nul.bin": b"a\x00b\x00\xff\xfe",
    "latin.txt": b"caf\xe9 \x80\n",
    "bom.txt": b"\xef\xbb\xbfwith a mark\n",
    "no-newline.txt": b"no newline at the end",
    "empty": b"",
    "newline": b"\n",
    "pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n",
}


def stored_bytes(case: Case) -> int:
    """How large the store is."""
    return sum(path.stat().st_size for path in case.ws.store.rglob("*") if path.is_file())


def lose_and_edit(case: Case, contents: dict[str, bytes]) -> None:
    """See these files lost and edited, and come back."""
    for name, data in contents.items():
        case.write(name, data)
    checkpoint = case.save()
    for name, data in contents.items():
        assert case.held(checkpoint, name) == data
        case.path(name).unlink()
    assert case.restore(checkpoint).ok
    for name in contents:
        case.write(name, b"edited\r\n")
    assert case.restore(checkpoint).ok
    assert {name: case.read(name) for name in contents} == contents


@pytest.mark.parametrize("attributes", CONVERTING_ATTRIBUTES)
def test_attributes_that_convert_content_convert_nothing(case: Case, attributes: str) -> None:
    """Case 50. Case 51. Case 52."""
    case.git("config", "core.autocrlf", "true")
    case.write(".gitattributes", attributes)
    lose_and_edit(case, AWKWARD)


@pytest.mark.parametrize("program", ["absent-program", "false", "sleep 600", "touch {}/ran; cat"])
def test_a_filter_is_neither_run_nor_missed(case: Case, program: str) -> None:
    """Case 53."""
    for way in ("clean", "smudge", "process"):
        case.git("config", f"filter.crypt.{way}", program.format(case.outside))
    case.git("config", "filter.crypt.required", "true")
    case.write(".gitattributes", "* filter=crypt\n")
    lose_and_edit(case, {"secret.bin": b"\x00GITCRYPT\x00" + os.urandom(100), "plain.txt": b"plain\n"})


def test_lfs_pointer_and_its_asset_are_each_kept(case: Case) -> None:
    """Case 54."""
    case.write(".gitattributes", "*.psd filter=lfs diff=lfs merge=lfs -text\n")
    asset = os.urandom(3 << 20)
    case.write("drawing.psd", AWKWARD["pointer"])
    pointer = case.save("the pointer")
    case.write("drawing.psd", asset)
    smudged = case.save("the asset")
    case.restore(pointer)
    assert case.read("drawing.psd") == AWKWARD["pointer"]
    case.restore(smudged)
    assert case.read("drawing.psd") == asset


def test_content_that_is_no_text_is_kept_and_compared_as_binary(case: Case) -> None:
    """Case 55."""
    lose_and_edit(case, AWKWARD)
    checkpoint = case.save("before the edit")
    case.write("nul.bin", b"\x00\x01\x02" * 100)
    case.write("latin.txt", b"caf\xe8 \x81\n")
    diff = case.diff(checkpoint)
    assert sorted(diff.modified_files) == ["latin.txt", "nul.bin"]
    assert diff.line_counts["nul.bin"] == (None, None)
    assert "\x00" not in diff.diff_content
    assert "binary" in diff.diff_content.lower()
    diff.diff_content.encode("utf-8", "surrogateescape")


SAVE_AND_MEASURE = """
import resource, sys
from holdfast import Workspace
ws = Workspace(sys.argv[1], store=sys.argv[2], home=sys.argv[3], environ={})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if sys.argv[4] == "save":
    ws.save("a large file")
else:
    assert ws.restore("latest").ok
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_a_large_file_is_streamed_in_bounded_memory(case: Case) -> None:
    """Case 56."""
    size, block = 320 << 20, os.urandom(1 << 20)
    with case.path("large.bin").open("wb") as file:
        for number in range(size >> 20):
            file.write(number.to_bytes(8) + block[8:])
    case.ws.list()
    words = (str(case.root), str(case.store_area), str(case.home))
    assert _extra_kilobytes(case, *words, "save") < 200 << 10
    checkpoint = case.save()
    case.path("large.bin").unlink()
    plan_only = case.preview(checkpoint.id)
    assert plan_only.written == ["large.bin"]
    assert _extra_kilobytes(case, *words, "restore") < 200 << 10
    assert not case.diff(checkpoint)


def _extra_kilobytes(case: Case, *words: str) -> int:
    with case.watched(words[-1]):
        process = run_python(SAVE_AND_MEASURE, *words, stdout=-1)
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return int(said)


@pytest.mark.slow
def test_a_file_beyond_four_gibibytes_keeps_its_size_and_its_end(case: Case) -> None:
    """Case 56."""
    size = (4 << 30) + 12345
    with case.path("huge.img").open("wb") as file:
        file.truncate(size)
        file.seek(size - 4)
        file.write(b"end!")
    checkpoint = case.save()
    case.path("huge.img").unlink()
    assert case.restore(checkpoint, irreversible="to save time; other cases undo what is large").ok
    with case.path("huge.img").open("rb") as file:
        file.seek(size - 4)
        assert file.read() == b"end!"


def test_file_crossing_the_size_limit_is_safe_both_ways(case: Case) -> None:
    """Case 57."""
    case.write(".gitignore", b"*.db\n")
    small, large = b"small" * 10, os.urandom((1 << 20) + 1)
    case.write("grows.db", small)
    case.write("shrinks.db", large)
    first = case.save()
    assert {each.path: each.reason for each in first.uncovered if each.path != ".git"} == {
        "shrinks.db": "ignored-large"
    }
    case.write("grows.db", large)
    case.write("shrinks.db", small)
    second = case.save()
    assert "grows.db" not in [each.path for each in second.uncovered], "what the store holds already stays covered"
    assert "shrinks.db" not in [each.path for each in second.uncovered]
    case.restore(first)
    assert (case.read("grows.db"), case.read("shrinks.db")) == (small, small)
    case.restore(second)
    assert (case.read("grows.db"), case.read("shrinks.db")) == (large, small)


def test_large_ignored_file_survives_every_restore(case: Case) -> None:
    """Case 57."""
    case.write(".gitignore", b"*.db\n")
    before = case.save("before it was made")
    data = os.urandom((1 << 20) + 1)
    case.write("big.db", data)
    after = case.save("after it was made")
    case.restore(before)
    assert case.read("big.db") == data
    case.path("big.db").unlink()
    assert "big.db" in case.restore(after).missing


@pytest.mark.slow
def test_repeated_one_byte_changes_do_not_store_the_whole_file(case: Case) -> None:
    """Case 58."""
    size, rounds = 24 << 20, 12
    data = bytearray(os.urandom(size))
    case.write("model.bin", bytes(data))
    case.save("first")
    first = stored_bytes(case)
    for number in range(rounds):
        with case.path("model.bin").open("r+b") as file:
            file.seek(number * (size // rounds))
            file.write(b"!")
        case.save(f"round {number}")
    case.ws.merge()
    assert stored_bytes(case) < first + rounds * (size // 8)


@pytest.mark.slow
def test_the_same_content_under_many_names_is_stored_once(case: Case) -> None:
    """Case 59."""
    data = os.urandom(16 << 10)
    for number in range(2000):
        case.write(f"copies/{number % 10}/{number}.bin", data)
    case.save()
    assert stored_bytes(case) < 1 << 20


def test_compression_never_costs_materially(case: Case) -> None:
    """Case 60."""
    case.ws.list()
    empty = stored_bytes(case)
    case.write("noise.bin", os.urandom(8 << 20))
    case.save()
    assert stored_bytes(case) - empty < (8 << 20) * 1.01 + (64 << 10)
    noisy = stored_bytes(case)
    case.write("zeros.bin", bytes(32 << 20))
    checkpoint = case.save()
    assert stored_bytes(case) - noisy < 1 << 20
    case.path("zeros.bin").unlink()
    case.path("noise.bin").unlink()
    assert case.restore(checkpoint).ok


def test_files_of_one_size_and_time_are_told_apart_by_content(case: Case) -> None:
    """Case 61."""
    for name, data in (("one", b"aaaa"), ("two", b"bbbb")):
        case.write(name, data)
        os.utime(case.path(name), ns=(10**18, 10**18))
    first = case.save()
    case.path("one").rename(case.path("spare"))
    case.path("two").rename(case.path("one"))
    case.path("spare").rename(case.path("two"))
    second = case.save("names exchanged")
    assert second.id != first.id
    assert case.held(second, "one") == b"bbbb"
    assert case.restore(first).ok
    assert (case.read("one"), case.read("two")) == (b"aaaa", b"bbbb")


def test_secret_is_stored_closed_and_goes_with_its_checkpoints(case: Case) -> None:
    """Case 63."""
    case.save("before the secret")
    case.write(".gitignore", b".env\n")
    case.write(".env", b"TOKEN=very-secret\n", mode=0o600)
    holding = case.save("with the secret")
    blob = case.git_store("rev-parse", f"{holding.id}:files/.env").decode().strip()
    case.path(".env").unlink()
    case.save("without the secret")
    case.ws.delete(holding.id)
    case.ws.merge()
    assert case.git_store("cat-file", "-t", blob, check=False) == b""
