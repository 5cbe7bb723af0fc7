"""Configuration: what is read, and the errors for invalid values."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import Refused, Unavailable, Workspace
from holdfast.configuration import parse_size, parse_span
from holdfast.retention import Policy
from holdfast.workspace.config import Settings, in_force, read_settings
from unprivileged import unprivileged

WHOLE = """\
exclude_patterns = ["*.log", "data/"]
ignored_file_max_bytes = "2 MiB"
ignored_total_max_bytes = 100000000
git_objects_max_bytes = "1 GiB"
watch = true
check = "pytest -q"
check_timeout = "90s"

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
        "scan_secrets": True,
        "redact": False,
        "git_objects_max_bytes": 1 << 30,
        "check_command": "pytest -q",
        "check_timeout_s": 90.0,
    }
    assert settings.retention == Policy(100, timedelta(days=30), 10, 3, max_bytes=1_500_000_000)
    assert settings.watch
    assert settings.file == "holdfast.toml"
    assert settings.keys_in_file >= {"exclude_patterns", "retention.keep_for"}


def test_the_section_of_a_pyproject_is_the_same(tmp_path: Path) -> None:
    text = WHOLE.replace("[retention]", "[tool.holdfast.retention]")
    (tmp_path / "pyproject.toml").write_text(f"[project]\nname = 'x'\n[tool.holdfast]\n{text}")
    section = read_settings(tmp_path)
    assert section.file == "pyproject.toml"
    (tmp_path / "pyproject.toml").unlink()
    (tmp_path / "holdfast.toml").write_text(WHOLE)
    own = read_settings(tmp_path)
    assert (section.options(), section.retention, section.keys_in_file) == (
        own.options(),
        own.retention,
        own.keys_in_file,
    )


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
        ("exclude_pattern = []", "1: unknown key 'exclude_pattern'", "Did you mean exclude_patterns?"),
        ("colour = 1", "1: unknown key 'colour'", "The keys are exclude_patterns,"),
        ("[retention]\nkeep_lats = 1", "2: unknown key 'retention.keep_lats'", "Did you mean retention.keep_last?"),
        ("keep_last = 1", "1: unknown key 'keep_last'", "The keys are"),
        ("exclude_patterns = '*.log'", "1: exclude_patterns is '*.log'", "Expected `array`, got `str`"),
        ("exclude_patterns = ['a', 1]", "1: exclude_patterns is ['a', 1]", "Expected `str`, got `int`"),
        ("ignored_file_max_bytes = -1", "1: ignored_file_max_bytes is -1", "0 or more"),
        ("ignored_file_max_bytes = true", "1: ignored_file_max_bytes is True", "whole number"),
        ("ignored_file_max_bytes = 'much'", "1: ignored_file_max_bytes is 'much'", "2 GiB"),
        ("ignored_file_max_bytes = '1 GiB'", "1: ignored_file_max_bytes is greater than ignored_total", "67108864"),
        ("# a switch\n\nwatch = 'yes'", "3: watch is 'yes'", "Expected `bool`"),
        ("retention = 3", "1: retention is 3", "Expected `table`, got `int`"),
        ("[retention]\nkeep_last = 1.5", "2: retention.keep_last is 1.5", "Expected `int"),
        ("[retention]\nkeep_last = -1", "2: retention.keep_last is -1", "`int` >= 0"),
        ("[retention]\nkeep_last = 1\nkeep_for = 30", "3: retention.keep_for is 30", "30d"),
        ("[retention]\nkeep_for = '30 years'", "2: retention.keep_for is '30 years'", "s, m, h, d or w"),
        ("[retention]\nkeep_every = 0", "2: retention.keep_every is 0", "`int` >= 1"),
        ("retention = { keep_every = 0 }", "1: retention.keep_every is 0", "`int` >= 1"),
        ("retention.keep_last = 1\nretention.keep_every = 0", "2: retention.keep_every is 0", "`int` >= 1"),
        ("exclude_patterns = [\n  'a',\n  1,\n]", "1: exclude_patterns is ['a', 1]", "Expected `str`"),
        ('exclude_patterns = ["""\nwatch = 1\n"""]\nwatch = 1', "4: watch is 1", "Expected `bool`"),
        ('"a` - at `$.b" = 1', ": Object contains unknown field", ""),
        ("exclude_patterns = [", " is not TOML", "Fix"),
    ],
)
def test_an_invalid_file_is_refused_with_file_line_and_key(tmp_path: Path, text: str, message: str, hint: str) -> None:
    (tmp_path / "holdfast.toml").write_text(text)
    with pytest.raises(Refused) as caught:
        read_settings(tmp_path)
    assert caught.value.message.startswith(f"holdfast.toml{':' if message[0].isdigit() else ''}{message}")
    assert hint in caught.value.hint


def test_lines_count_from_the_top_of_a_pyproject(tmp_path: Path) -> None:
    text = "[project]\nname = 'x'\nwatch = 1\n\n[tool.holdfast]\nexclude_patterns = []\nwatch = 1\n"
    (tmp_path / "pyproject.toml").write_bytes(text.replace("\n", "\r\n").encode())
    with pytest.raises(Refused, match=r"^pyproject.toml:7: watch is 1"):
        read_settings(tmp_path)


@pytest.mark.parametrize("before", ["# a line\n" * 6000, f'exclude_patterns = ["""{chr(10) * 3000}"""]\n'])
def test_no_line_is_better_than_a_slow_one(tmp_path: Path, before: str) -> None:
    (tmp_path / "holdfast.toml").write_text(f"{before}watch = 1\n")
    with pytest.raises(Refused, match=r"^holdfast.toml: watch is 1"):
        read_settings(tmp_path)


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
    [
        ("-1", "toml:3: retention.types.automatic is -1"),
        ('"10"', "'forever', a whole number, a table"),
        ("true", "toml:3: retention.types.automatic is True"),
        ("{ keep = 1 }", "toml:3: unknown key 'retention.types.automatic.keep'"),
    ],
)
def test_a_rule_of_a_type_that_makes_no_sense_is_refused(tmp_path: Path, rule: str, said: str) -> None:
    (tmp_path / "holdfast.toml").write_text(f"[retention.types]\nmanual = 3\nautomatic = {rule}\n")
    with pytest.raises(Refused, match=said):
        read_settings(tmp_path)


def test_a_value_that_is_deeper_than_it_can_be_shown_is_refused(tmp_path: Path) -> None:
    keys = ".".join("a" * 900)
    (tmp_path / "holdfast.toml").write_text(f"watch = [{{{keys} = [\n{{{keys} = [\n{{{keys} = 1}}]}}]}}]\n")
    with pytest.raises(Refused, match=r"toml:1: watch is (nested too deeply|\[\{'a': )") as refused:
        read_settings(tmp_path)  # how deep a value can be shown depends on the version of Python
    assert len(str(refused.value)) < 500


def test_a_value_that_is_long_is_not_shown_whole(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(f'watch = "{"x" * 100_000}"\n')
    with pytest.raises(Refused) as caught:
        read_settings(tmp_path)
    assert len(str(caught.value)) < 400


class TestThinning:
    @staticmethod
    def read(folder: Path, text: str) -> Settings:
        (folder / "holdfast.toml").write_text(text)
        return read_settings(folder)

    def test_on_by_default(self, tmp_path: Path) -> None:
        assert read_settings(tmp_path).thinning is True
        assert in_force(Settings())["thinning.keep_turns_for"] == ("7d", "default")

    def test_turned_off(self, tmp_path: Path) -> None:
        settings = self.read(tmp_path, "thinning = false\n")
        assert settings.thinning is False
        assert in_force(settings)["thinning"] == (False, "holdfast.toml")

    def test_one_key_leaves_the_others(self, tmp_path: Path) -> None:
        settings = self.read(tmp_path, '[thinning]\nkeep_turns_for = "14d"\nmax_bytes = "1 GiB"\n')
        assert settings.thinning == Policy(
            keep_for=timedelta(days=1),
            keep_turns_for=timedelta(days=14),
            keep_hourly_for=timedelta(days=30),
            max_bytes=1 << 30,
        )
        assert in_force(settings)["thinning.max_bytes"] == (1 << 30, "holdfast.toml")

    def test_in_a_pyproject(self, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text("[tool.holdfast]\nthinning = false\n")
        assert read_settings(tmp_path).thinning is False

    @pytest.mark.parametrize("text", ["thinning = 3", '[thinning]\nkeep_for = "x"', "[thinning]\nkeep_last = 3"])
    def test_anything_else_is_refused(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(Refused, match="thinning"):
            self.read(tmp_path, text)
