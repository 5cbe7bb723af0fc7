"""Ignore rules: which source outranks which, where each begins and ends, and how a verdict reads.

That single patterns match what they match in git is compared with git itself, in tests/property.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.scan.ignore import (
    BUILD_FOLDERS,
    DEPENDENCY_FOLDERS,
    EXCLUDED,
    IGNORED,
    INCLUDED,
    MAX_IGNORE_BYTES,
    Around,
    Rules,
    Sources,
    Verdict,
    decide_path,
)


def verdict_of(rules: Rules, path: str, *, is_dir: bool = False) -> tuple[str, str] | None:
    verdict = rules.decide(path, is_dir=is_dir)
    return None if verdict is None else (verdict.kind, verdict.rule)


class TestVerdicts:
    def test_a_path_that_no_rule_names_has_none(self) -> None:
        rules = Rules.root(exclude_patterns=["*.bin"]).inside("", gitignore=b"*.log\n", holdfastignore=b"*.tmp\n")

        assert verdict_of(rules, "main.py") is None

    def test_a_verdict_names_the_source_the_line_and_the_pattern(self) -> None:
        rules = Rules.root(exclude_patterns=["*.bin"], excludes_file=b"\n\n\n*~\n")
        rules = rules.inside("", gitignore=b"# logs\n\n*.log  \n", repository=True, info_exclude=b"\nfoo\n")
        rules = rules.inside("src", gitignore=b"/x\n", holdfastignore=b"y/\n")

        assert verdict_of(rules, "src/a.bin") == (EXCLUDED, "exclude_patterns: *.bin")
        assert verdict_of(rules, "src/y", is_dir=True) == (EXCLUDED, "src/.holdfastignore:1: y/")
        assert verdict_of(rules, "src/x") == (IGNORED, "src/.gitignore:1: /x")
        assert verdict_of(rules, "src/a.log") == (IGNORED, ".gitignore:3: *.log")
        assert verdict_of(rules, "src/foo") == (IGNORED, ".git/info/exclude:2: foo")
        assert verdict_of(rules, "src/a~") == (IGNORED, "core.excludesFile:4: *~")

    def test_a_rule_can_be_printed_whatever_bytes_it_is_made_of(self) -> None:
        rules = Rules.root().inside("é\udcff", gitignore=b"\xc3\xa9\xff\n")

        verdict = rules.decide("é\udcff/é\udcff", is_dir=False)

        assert verdict == Verdict(IGNORED, "é\\xff/.gitignore:1: é\\xff")
        assert verdict.rule.encode()

    def test_verdicts_are_equal_where_kind_and_rule_are(self) -> None:
        verdict = Verdict(IGNORED, "a")

        assert verdict == Verdict(IGNORED, "a")
        assert hash(verdict) == hash(Verdict(IGNORED, "a"))
        assert verdict != Verdict(EXCLUDED, "a")
        assert verdict != Verdict(IGNORED, "b")
        assert verdict != "a"

    def test_the_name_of_a_repository_further_in_is_part_of_the_rule(self) -> None:
        rules = Rules.root().inside("lib", repository=True, info_exclude=b"x\n")

        assert verdict_of(rules, "lib/x") == (IGNORED, "lib/.git/info/exclude:1: x")


class TestPrecedence:
    def test_the_last_line_that_matches_decides(self) -> None:
        rules = Rules.root().inside("", gitignore=b"*.log\n!keep.log\nk*.log\n!keep.log\n/a\n")

        assert verdict_of(rules, "b.log") == (IGNORED, ".gitignore:1: *.log")
        assert verdict_of(rules, "kept.log") == (IGNORED, ".gitignore:3: k*.log")
        assert verdict_of(rules, "keep.log") is None

    def test_of_two_gitignores_the_deeper_decides(self) -> None:
        outer = Rules.root().inside("", gitignore=b"*.log\n!*.txt\n")
        inner = outer.inside("src", gitignore=b"!a.log\n*.txt\n")

        assert verdict_of(inner, "src/a.log") is None
        assert verdict_of(inner, "src/b.log") == (IGNORED, ".gitignore:1: *.log")
        assert verdict_of(inner, "src/a.txt") == (IGNORED, "src/.gitignore:2: *.txt")
        assert verdict_of(outer, "a.txt") is None

    def test_gitignore_outranks_info_exclude_and_excludes_file(self) -> None:
        rules = Rules.root(excludes_file=b"a\nb\nc\n")
        rules = rules.inside("", gitignore=b"!a\n", info_exclude=b"a\n!b\n", repository=True)

        assert verdict_of(rules, "a") is None
        assert verdict_of(rules, "b") is None
        assert verdict_of(rules, "c") == (IGNORED, "core.excludesFile:3: c")

    def test_deeper_holdfastignore_wins_below_exclude_patterns(self) -> None:
        rules = Rules.root(exclude_patterns=["*.a", "!x.b"])
        rules = rules.inside("", holdfastignore=b"!*.a\n*.b\n*.c\n").inside("src", holdfastignore=b"*.b\n!*.c\n")

        assert verdict_of(rules, "src/x.a") == (EXCLUDED, "exclude_patterns: *.a")
        assert verdict_of(rules, "src/x.b") == (INCLUDED, "exclude_patterns: !x.b")
        assert verdict_of(rules, "src/y.b") == (EXCLUDED, "src/.holdfastignore:1: *.b")
        assert verdict_of(rules, "src/x.c") == (INCLUDED, "src/.holdfastignore:2: !*.c")

    def test_deeper_holdfastignore_wins(self) -> None:
        rules = Rules.root().inside("", holdfastignore=b"*.b\n").inside("src", holdfastignore=b"!*.b\n")

        assert verdict_of(rules, "src/x.b") == (INCLUDED, "src/.holdfastignore:1: !*.b")

    def test_a_holdfastignore_far_out_outranks_a_gitignore_close_by(self) -> None:
        rules = Rules.root().inside("", holdfastignore=b"!*.env\n*.iso\n").inside("src", gitignore=b"*.env\n!*.iso\n")

        assert verdict_of(rules, "src/a.env") == (INCLUDED, ".holdfastignore:1: !*.env")
        assert verdict_of(rules, "src/a.iso") == (EXCLUDED, ".holdfastignore:2: *.iso")

    def test_last_exclude_pattern_decides(self) -> None:
        rules = Rules.root(exclude_patterns=["#notes", "a ", "*.log", "!b.log", "/top", "new\nline", "cut\0off"])

        assert verdict_of(rules, "#notes") == (EXCLUDED, "exclude_patterns: #notes")
        assert verdict_of(rules, "a ") == (EXCLUDED, "exclude_patterns: a ")
        assert verdict_of(rules, "a") is None
        assert verdict_of(rules, "b.log") == (INCLUDED, "exclude_patterns: !b.log")
        assert verdict_of(rules, "x/top") is None
        assert verdict_of(rules, "new\nline") == (EXCLUDED, "exclude_patterns: new\nline")
        assert verdict_of(rules, "off") is None


class TestScope:
    def test_an_anchored_pattern_holds_from_the_folder_of_its_file(self) -> None:
        rules = (
            Rules.root(exclude_patterns=["/x"]).inside("é", gitignore=b"/a\nb/c\n").inside("é/d", holdfastignore=b"/e")
        )

        assert verdict_of(rules, "é/a") is not None
        assert verdict_of(rules, "é/b/c") is not None
        assert verdict_of(rules, "é/d/a") is None
        assert verdict_of(rules, "é/d/e") is not None
        assert verdict_of(rules, "é/d/x") is None
        assert verdict_of(rules, "a") is None
        assert verdict_of(rules, "è/a") is None

    def test_gits_rules_from_outside_end_at_a_repository(self) -> None:
        rules = Rules.root().inside("", gitignore=b"*.a\n", info_exclude=b"*.b\n", repository=True)
        inner = rules.inside("lib", repository=True, gitignore=b"*.c\n", info_exclude=b"*.d\n")

        assert [verdict_of(inner, f"lib/x.{end}") is not None for end in "abcd"] == [False, False, True, True]
        assert [verdict_of(rules, f"x.{end}") is not None for end in "abcd"] == [True, True, False, False]

    def test_own_rules_and_excludes_file_apply_in_a_repository(self) -> None:
        rules = Rules.root(exclude_patterns=["*.a"], excludes_file=b"*.b\n").inside("", holdfastignore=b"*.c\n")
        inner = rules.inside("lib", repository=True)

        assert [verdict_of(inner, f"lib/x.{end}") is not None for end in "abc"] == [True, True, True]

    def test_anchored_excludes_file_lines_start_at_the_repository(self) -> None:
        rules = Rules.root(excludes_file=b"/a\n").inside("", repository=True)
        inner = rules.inside("lib", repository=True)

        assert verdict_of(rules, "a") == (IGNORED, "core.excludesFile:1: /a")
        assert verdict_of(inner, "lib/a") == (IGNORED, "core.excludesFile:1: /a")
        assert verdict_of(rules, "lib/a") is None

    def test_info_exclude_is_heeded_only_at_the_root_of_a_repository(self) -> None:
        rules = Rules.root().inside("", gitignore=b"a\n", info_exclude=b"b\n")

        assert verdict_of(rules, "a") is not None
        assert verdict_of(rules, "b") is None

    def test_a_rule_from_above_the_workspace_says_where_it_stands(self) -> None:
        around = Around("a/b", gitignores={"": b"/a/b/x\n", "a": b"y\n"}, info_exclude=b"a/*/z\n")
        rules = Rules.root(around=around, excludes_file=b"/a/b/u\n")

        assert verdict_of(rules, "x") == (IGNORED, "../../.gitignore:1: /a/b/x")
        assert verdict_of(rules, "deep/y") == (IGNORED, "../.gitignore:1: y")
        assert verdict_of(rules, "z") == (IGNORED, "../../.git/info/exclude:1: a/*/z")
        assert verdict_of(rules, "u") == (IGNORED, "core.excludesFile:1: /a/b/u")
        assert verdict_of(rules, "deep/x") is None

    def test_rules_from_above_end_at_a_repository_in_the_workspace(self) -> None:
        around = Around("a", gitignores={"": b"x\n"}, info_exclude=b"")

        assert verdict_of(Rules.root(around=around).inside("lib", repository=True), "lib/x") is None

    @pytest.mark.parametrize("source", ["gitignore", "holdfastignore"])
    def test_an_ignore_file_above_the_limit_counts_as_empty(self, source: str) -> None:
        filling = b"#" * (MAX_IGNORE_BYTES - 2)
        rules = Rules.root()
        assert MAX_IGNORE_BYTES == 1024 * 1024

        assert verdict_of(rules.inside("", **{source: b"a\n" + filling}), "a") is not None  # type: ignore[arg-type]
        assert verdict_of(rules.inside("", **{source: b"a\n#" + filling}), "a") is None  # type: ignore[arg-type]

    def test_a_users_file_above_the_limit_counts_as_empty(self) -> None:
        rules = Rules.root(excludes_file=b"a\n" + b"#" * MAX_IGNORE_BYTES)

        assert verdict_of(rules, "a") is None
        assert rules.digest == Rules.root().digest


class TestDigest:
    def test_a_folder_without_ignore_files_shares_its_parents_rules(self) -> None:
        rules = Rules.root().inside("", gitignore=b"a\n")

        assert rules.inside("src") is rules
        assert rules.inside("src", gitignore=b"", holdfastignore=b"") is rules

    def test_the_same_sources_give_the_same_digest(self) -> None:
        def rules() -> Rules:
            return Rules.root(exclude_patterns=["a"], excludes_file=b"b").inside("c", gitignore=b"d", repository=True)

        assert rules().digest == rules().digest

    def test_whatever_changes_decisions_changes_the_digest(self) -> None:
        start = Rules.root()
        chains = [
            start,
            Rules.root(exclude_patterns=["a"]),
            Rules.root(exclude_patterns=["a", "b"]),
            Rules.root(exclude_patterns=["b", "a"]),
            Rules.root(exclude_patterns=["a\nb"]),
            Rules.root(excludes_file=b"a"),
            Rules.root(excludes_file=b"a").inside("x", repository=True),
            start.inside("", gitignore=b"a"),
            start.inside("", gitignore=b"b"),
            start.inside("x", gitignore=b"a"),
            start.inside("", holdfastignore=b"a"),
            start.inside("", info_exclude=b"a", repository=True),
            start.inside("", gitignore=b"a").inside("x", gitignore=b"a"),
            start.inside("", gitignore=b"b").inside("x", gitignore=b"a"),
            start.inside("", gitignore=b"a").inside("x", gitignore=b"b"),
        ]

        assert len({rules.digest for rules in chains}) == len(chains)

    def test_what_no_longer_applies_is_not_in_the_digest(self) -> None:
        one = Rules.root().inside("", gitignore=b"a").inside("lib", gitignore=b"c", repository=True)
        other = Rules.root().inside("", gitignore=b"b").inside("lib", gitignore=b"c", repository=True)

        assert one.digest == other.digest


class TestNames:
    def test_patterns_are_compared_byte_by_byte(self) -> None:
        rules = Rules.root().inside("", gitignore="é?\n??\n[é]x\n".encode())

        assert verdict_of(rules, "éa") == (IGNORED, ".gitignore:1: é?")
        assert verdict_of(rules, "é") == (IGNORED, ".gitignore:2: ??")
        assert verdict_of(rules, "éx") == (IGNORED, ".gitignore:1: é?")
        assert verdict_of(rules, "\udcc3x") == (IGNORED, ".gitignore:3: [é]x")

    @pytest.mark.parametrize(
        ("pattern", "path"),
        [
            ("*a" * 40 + "*b*", "a" * 250),
            ("*a" * 40 + "*b*c", "a" * 249 + "c"),
            ("*?" * 40 + "[!a]c", "a" * 249 + "c"),
            ("*[ab]" * 40 + "*d*c", "ab" * 120 + "c"),
            ("**/a/" * 40 + "b/**/c", "a/" * 1000 + "c"),
            ("**/*a*a*b/" * 20 + "c", ("a" * 200 + "/") * 20 + "c"),
            ("**/" * 1000 + "a/b", "b/" * 1000 + "b"),
        ],
    )
    def test_a_hostile_pattern_comes_to_an_end(self, pattern: str, path: str) -> None:
        rules = Rules.root(exclude_patterns=[pattern])

        assert verdict_of(rules, path) is None
        assert rules.decide(path[:-1] + "c", is_dir=False) is None

    @pytest.mark.parametrize("piece", [b"?", b"[!a]*", b"\\a", b"*/", b"**/", b"a/", b"[a-z]", b"[", b"[[:"])
    def test_a_line_of_absurd_length_comes_to_an_end(self, piece: bytes) -> None:
        rules = Rules.root().inside("", gitignore=piece * (100_000 // len(piece)) + b"b\nb\n")

        assert verdict_of(rules, "a/b") == (IGNORED, ".gitignore:2: b")


def no_sources(folder: str) -> Sources:
    return Sources()


def sources_of(**files: bytes) -> Callable[[str], Sources]:
    """A .gitignore in each folder named: `_` is the root."""
    return lambda folder: Sources(gitignore=files.get(folder or "_"))


class TestWholePaths:
    def test_the_first_folder_on_the_way_that_is_left_out_decides(self) -> None:
        sources = sources_of(_=b"out/\n*.log\n", src=b"!x.log\ngen\n")
        asked = Rules.root()

        def decided(path: str) -> str | None:
            verdict = decide_path(asked, path, is_dir=False, sources=sources)
            return verdict and verdict.rule

        assert decided("a/out/b/c.log") == ".gitignore:1: out/"
        assert decided("out") is None
        assert decided("a/b.log") == ".gitignore:2: *.log"
        assert decided("src/x.log") is None
        assert decided("src/gen/y") == "src/.gitignore:2: gen"
        assert decided("gen/y") is None

    def test_folders_below_an_ignored_one_are_not_asked(self) -> None:
        asked = []

        def sources(folder: str) -> Sources:
            asked.append(folder)
            return Sources(gitignore=b"c" if folder == "a" else None)

        decide_path(Rules.root(), "a/b/c/d/e", is_dir=False, sources=sources)

        assert asked == ["", "a", "a/b"]

    def test_a_repository_on_the_way_ends_gits_outer_rules(self) -> None:
        def sources(folder: str) -> Sources:
            return Sources(
                gitignore=b"*.log" if not folder else None, repository=folder in ("", "lib"), info_exclude=b"t"
            )

        assert decide_path(Rules.root(), "lib/a.log", is_dir=False, sources=sources) is None
        assert decide_path(Rules.root(), "lib/t", is_dir=False, sources=sources) is not None

    def test_a_dependency_folder_is_excluded_with_all_in_it(self) -> None:
        expected = Verdict(EXCLUDED, "built-in: node_modules")

        assert decide_path(Rules.root(), "a/node_modules/b/c", is_dir=False, sources=no_sources) == expected
        assert decide_path(Rules.root(), "node_modules", is_dir=True, sources=no_sources) == expected
        assert decide_path(Rules.root(), "node_modules", is_dir=False, sources=no_sources) is None

    def test_a_dependency_folder_is_excluded_rather_than_ignored(self) -> None:
        verdict = decide_path(Rules.root(), "node_modules/a", is_dir=False, sources=sources_of(_=b"node_modules\n"))

        assert verdict == Verdict(EXCLUDED, "built-in: node_modules")

    def test_excluded_dependency_folder_names_the_rule(self) -> None:
        root = Rules.root(exclude_patterns=["node_modules"])

        verdict = decide_path(root, "node_modules/a", is_dir=False, sources=no_sources)

        assert verdict == Verdict(EXCLUDED, "exclude_patterns: node_modules")

    def test_a_dependency_folder_can_be_included(self) -> None:
        root = Rules.root(exclude_patterns=["!node_modules/"])

        assert decide_path(root, "node_modules/a", is_dir=False, sources=no_sources) is None
        folder = decide_path(root, "node_modules", is_dir=True, sources=no_sources)
        assert folder == Verdict(INCLUDED, "exclude_patterns: !node_modules/")

    def test_the_workspace_itself_is_never_left_out(self) -> None:
        assert decide_path(Rules.root(exclude_patterns=["*", "/**"]), "", is_dir=True, sources=no_sources) is None


def test_no_folder_is_both_a_dependency_and_a_build_folder() -> None:
    assert "node_modules" in DEPENDENCY_FOLDERS
    assert "target" in BUILD_FOLDERS
    assert not DEPENDENCY_FOLDERS & BUILD_FOLDERS
