"""Configuration: what is read of it, and what is said of what makes no sense."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import Refused, Unavailable, Workspace
from holdfast.retention import Policy
from holdfast.workspace.config import Settings, in_force, read_settings
from holdfast.workspace.quantities import parse_size, parse_span
from unprivileged import unprivileged

WHOLE = """\
exclude_patterns = ["*.log", "data/"]
ignored_file_max_bytes = "2 MiB"
ignored_total_max_bytes = 100000000
watch = true

[retention]
keep_last = 100
keep_for = "30d"
keep_every = 10
keep_last_per_session = 3
max_bytes = "1.5 GB"
"""


def test_without_a_file_the_defaults_are_in_force(tmp_path: Path) -> None:
    settings = read_settings(tmp_path)
    assert settings == Settings()
    assert settings.file is None
    assert settings.retention is None


def test_every_key_is_read(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(WHOLE)
    settings = read_settings(tmp_path)
    assert settings.options() == {
        "exclude_patterns": ["*.log", "data/"],
        "ignored_file_max_bytes": 2 << 20,
        "ignored_total_max_bytes": 100_000_000,
    }
    assert settings.retention == Policy(100, timedelta(days=30), 10, 3, max_bytes=1_500_000_000)
    assert settings.watch
    assert settings.file == "holdfast.toml"
    assert settings.given >= {"exclude_patterns", "retention.keep_for"}


def test_the_section_of_a_pyproject_is_the_same(tmp_path: Path) -> None:
    text = WHOLE.replace("[retention]", "[tool.holdfast.retention]")
    (tmp_path / "pyproject.toml").write_text(f"[project]\nname = 'x'\n[tool.holdfast]\n{text}")
    section = read_settings(tmp_path)
    assert section.file == "pyproject.toml"
    (tmp_path / "pyproject.toml").unlink()
    (tmp_path / "holdfast.toml").write_text(WHOLE)
    own = read_settings(tmp_path)
    assert (section.options(), section.retention, section.given) == (own.options(), own.retention, own.given)


@pytest.mark.parametrize(
    "text", ["[project]\nname = 'holdfast tool'\n", "[tool.other]\nx = 1\n# holdfast", "half a [table", ""]
)
def test_a_pyproject_that_does_not_configure_us_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert read_settings(tmp_path) == Settings()


def test_two_configurations_contradict_each_other(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("")
    (tmp_path / "pyproject.toml").write_text("[tool.holdfast]\n")
    with pytest.raises(Refused, match=r"holdfast.toml and \[tool.holdfast\] in pyproject.toml"):
        read_settings(tmp_path)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("exclude_pattern = []", "no key 'exclude_pattern'", "Did you mean exclude_patterns?"),
        ("colour = 1", "no key 'colour'", "The keys are exclude_patterns,"),
        ("[retention]\nkeep_lats = 1", "no key 'retention.keep_lats'", "Did you mean retention.keep_last?"),
        ("keep_last = 1", "no key 'keep_last'", "The keys are"),
        ("exclude_patterns = '*.log'", "exclude_patterns is '*.log'", "a list of texts"),
        ("exclude_patterns = [1]", "exclude_patterns is [1]", "a list of texts"),
        ("ignored_file_max_bytes = -1", "ignored_file_max_bytes is -1", "whole number"),
        ("ignored_file_max_bytes = true", "ignored_file_max_bytes is True", "whole number"),
        ("ignored_file_max_bytes = 'much'", "ignored_file_max_bytes is 'much', which is not a size", "2 GiB"),
        ("ignored_file_max_bytes = '1 GiB'", "is greater than ignored_total_max_bytes", "67108864"),
        ("watch = 'yes'", "watch is 'yes'", "true or false"),
        ("retention = 3", "retention is 3", "[retention]"),
        ("[retention]\nkeep_last = 1.5", "retention.keep_last is 1.5", "whole number"),
        ("[retention]\nkeep_for = 30", "retention.keep_for is 30", "30d"),
        ("[retention]\nkeep_for = '30 years'", "retention.keep_for is '30 years', which is not a duration", "30d"),
        ("[retention]\nkeep_every = 0", "keep_every is 0", "1 or more"),
        ("exclude_patterns = [", "is not TOML", "Fix"),
    ],
)
def test_what_makes_no_sense_is_refused_with_file_and_key(tmp_path: Path, text: str, message: str, hint: str) -> None:
    (tmp_path / "holdfast.toml").write_text(text)
    with pytest.raises(Refused) as caught:
        read_settings(tmp_path)
    assert caught.value.message.startswith("holdfast.toml")
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_the_section_must_be_a_table(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\nholdfast = 3\n")
    with pytest.raises(Refused, match="holdfast is 3"):
        read_settings(tmp_path)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(Refused, match="not TOML"):
        read_settings(tmp_path)


def test_a_file_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(Refused, match="1 MiB"):
        read_settings(tmp_path)


def test_a_file_that_cannot_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").touch(mode=0)
    with pytest.raises(Unavailable, match="cannot be read"):
        unprivileged(lambda: read_settings(tmp_path))


def test_a_file_that_leads_nowhere_useful_is_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").symlink_to("holdfast.toml")
    with pytest.raises(Unavailable, match="cannot be read"):
        read_settings(tmp_path)


def test_the_options_are_those_of_a_workspace(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "holdfast.toml").write_text(WHOLE)
    (project / "run.log").write_text("x")
    options = read_settings(project).options()
    workspace = Workspace(project, store=tmp_path / "store", home=tmp_path / "home", environ={}, **options)
    assert workspace.save().files_changed == ["holdfast.toml"]


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("12", 12), ("12 B", 12), ("1kb", 1000), ("1 KiB", 1024), ("1.5 MiB", 3 << 19), ("2TiB", 2 << 40)],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text, "it") == size


@pytest.mark.parametrize("text", ["", "-1", "1 X", "MiB", "1 Mi", "1e3", "١"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(Refused, match="it is"):
        parse_size(text, "it")


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("90s", timedelta(seconds=90)),
        ("1.5 h", timedelta(minutes=90)),
        ("2w", timedelta(days=14)),
        ("0d", timedelta(0)),
    ],
)
def test_times_are_read_as_people_write_them(text: str, span: timedelta) -> None:
    assert parse_span(text, "it") == span


@pytest.mark.parametrize("text", ["", "30", "-1d", "1 y", "d", "9999999999999w"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(Refused, match="it is"):
        parse_span(text, "it")


def test_each_type_can_have_a_rule_of_its_own(tmp_path: Path) -> None:
    lines = 'automatic = 10\nmanual = "forever"\nsession = { keep_last = 3, keep_for = "7d" }\n'
    (tmp_path / "holdfast.toml").write_text(f"[retention]\nkeep_last = 50\n[retention.types]\n{lines}")
    settings = read_settings(tmp_path)
    session = Policy(keep_last=3, keep_for=timedelta(days=7))
    rules = {"automatic": Policy(keep_last=10), "manual": None, "session": session}
    assert settings.retention == Policy(keep_last=50, by_kind=rules)
    value, source = in_force(settings)["retention.types"]
    assert source == "holdfast.toml"
    assert value == ["automatic: the last 10", "manual: until deleted", "session: the last 3, younger than 7 days"]


@pytest.mark.parametrize(
    ("rule", "said"),
    [("-1", "types.automatic"), ('"10"', "forever"), ("true", "types.automatic"), ("{ keep = 1 }", "keep_")],
)
def test_a_rule_of_a_type_that_makes_no_sense_is_refused(tmp_path: Path, rule: str, said: str) -> None:
    (tmp_path / "holdfast.toml").write_text(f"[retention.types]\nautomatic = {rule}\n")
    with pytest.raises(Refused, match=said):
        read_settings(tmp_path)


def test_a_value_that_is_deeper_than_it_can_be_shown_is_refused(tmp_path: Path) -> None:
    keys = ".".join("a" * 900)
    (tmp_path / "holdfast.toml").write_text(f"watch = [{{{keys} = [\n{{{keys} = [\n{{{keys} = 1}}]}}]}}]\n")
    with pytest.raises(Refused, match="watch is nested too deeply"):
        read_settings(tmp_path)


def test_a_value_that_is_long_is_not_shown_whole(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(f'watch = "{"x" * 100_000}"\n')
    with pytest.raises(Refused) as caught:
        read_settings(tmp_path)
    assert len(str(caught.value)) < 400
