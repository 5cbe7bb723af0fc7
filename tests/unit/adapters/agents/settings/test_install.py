"""Installing into settings that are somebody's: merged, never overwritten, and taken out again exactly."""

from __future__ import annotations

import contextlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.adapters.agents.base import SettingsPaths, SettingsScope, find_agent
from holdfast.adapters.agents.names import AGENT_NAMES
from holdfast.adapters.agents.protocol import state_folder
from holdfast.adapters.agents.settings.hook_entries import are_same, found_entries, with_entries, without_entries
from holdfast.adapters.agents.settings.install import apply_change, plan_install, plan_uninstall
from holdfast.adapters.agents.settings.jsonc import NotJSON, parse
from holdfast.adapters.agents.settings.shim import write_shim
from holdfast.errors import Conflict, Refused

WORDS = ["/opt/hold fast/bin/holdfast", "hook"]
IN_JSON = [name for name in AGENT_NAMES if name not in ("opencode", "kilo")]

TEXTS = {
    "empty object": "{}\n",
    "empty object with room": "{\n}\n",
    "other settings": '{\n  "model": "opus",\n  "hooks": {}\n}\n',
    "tabs": '{\n\t"a": [1,\n\t\t2]\n}',
    "four spaces": '{\n    "a": {\n        "b": null\n    }\n}\n',
    "one line": '{"a": 1, "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}}',
    "comments": '// mine\n{\n  // before\n  "a": 1, // beside\n  /* after */\n}\n// end\n',
    "a comment behind the last": '{\n  "a": 1 // beside\n}\n',
    "last comma": '{\n  "a": [1, 2,],\n}\n',
    "windows": '{\r\n  "a": 1\r\n}\r\n',
    "others' hooks": (
        '{\n  "hooks": {\n    "PreToolUse": [\n      {"matcher": "Bash", "hooks": [{"type": "command", "command":'
        ' "holdfast-like hook claude-code"}]} // keep\n    ],\n    "preToolUse": [],\n    "BeforeTool": [{"hooks": []}]'
        '\n  },\n  "z": "ü \\u00fc {[/*"\n}\n'
    ),
}


@pytest.fixture
def places(home: Path, project: Path) -> SettingsPaths:
    return SettingsPaths(home, {"HOME": str(home)}, project)


def words(name: str) -> list[str]:
    return [*WORDS, name]


@pytest.mark.parametrize("name", IN_JSON)
@pytest.mark.parametrize("title", TEXTS)
def test_entries_are_added_beside_others_and_removed_again(name: str, title: str) -> None:
    text, agent = TEXTS[title], find_agent(name)
    entries = agent.entries(words(name))
    after = with_entries(text, agent, entries)
    assert are_same(found_entries(after, name), entries)
    assert with_entries(after, agent, entries) == after
    before, now = parse(text).plain(), parse(after).plain()
    for key, value in before.items():
        if key != "hooks":
            assert now[key] == value
    for event, listed in before.get("hooks", {}).items():
        assert now["hooks"][event][: len(listed)] == listed
    assert ("\r\n" in text) == ("\r\n" in after) and after.count("\r\n") in (0, after.count("\n"))
    for comment in ("// mine", "// before", "// beside", "/* after */", "// end", "// keep"):
        assert (comment in text) == (comment in after)
    left = parse(without_entries(after, name)).plain()
    hooks = {event: listed for event, listed in before.get("hooks", {}).items() if listed}
    assert {**left, "hooks": {key: each for key, each in left.get("hooks", {}).items() if each}} == {
        **agent.frame,
        **before,
        "hooks": hooks,
    }


def test_a_comment_stays_at_the_line_that_it_is_about() -> None:
    after = with_entries(
        TEXTS["a comment behind the last"], find_agent("gemini"), find_agent("gemini").entries(words("gemini"))
    )
    assert '"a": 1, // beside\n' in after


@pytest.mark.parametrize(
    "text", ["{", "{'a': 1}", "{} {}", '{"a" 1}', "[1 2]", "nothing", '{"a": 01}', "[" * 200, "{,}"]
)
def test_what_is_no_json_is_not_taken_for_it(text: str) -> None:
    with pytest.raises(NotJSON):
        parse(text)


@pytest.mark.parametrize("scope", SettingsScope)
@pytest.mark.parametrize("name", AGENT_NAMES)
def test_untouched_file_gets_its_bytes_back_and_new_one_goes(
    name: str, scope: SettingsScope, places: SettingsPaths
) -> None:
    agent = find_agent(name)
    path = agent.settings(places, scope)
    for before in (None, b'\xef\xbb\xbf{ "odd" :\t1 ,\n}', b"", b" \n"):
        if before is not None and name in ("opencode", "kilo"):
            continue  # its file is ours alone
        if before is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(before)
            path.chmod(0o640)
        apply_change(plan_install(agent, scope, places, words(name)), places.environ)
        assert not plan_install(agent, scope, places, words(name))
        assert path.read_bytes().startswith((before or b"").strip()[:3])
        if before is not None:
            assert path.stat().st_mode & 0o777 == 0o640
        apply_change(plan_uninstall(agent, scope, places), places.environ)
        assert (path.read_bytes() if path.exists() else None) == before
        assert not plan_uninstall(agent, scope, places)
        if before is None:
            made = agent.settings(places, scope).parent
            assert not made.exists() or made in (places.home, places.project)


@pytest.mark.parametrize("name", IN_JSON)
def test_changed_file_loses_only_our_entries(name: str, places: SettingsPaths) -> None:
    agent = find_agent(name)
    path = agent.settings(places, SettingsScope.USER)
    apply_change(plan_install(agent, SettingsScope.USER, places, words(name)), places.environ)
    said = json.loads(path.read_text())
    said["mine"] = True
    path.write_text(json.dumps(said))
    apply_change(plan_uninstall(agent, SettingsScope.USER, places), places.environ)
    assert json.loads(path.read_text()) == {**agent.frame, "mine": True}


def test_new_program_path_replaces_our_entries(places: SettingsPaths) -> None:
    agent = find_agent("claude-code")
    path = agent.settings(places, SettingsScope.USER)
    path.parent.mkdir()
    path.write_text(TEXTS["comments"])
    for place in ("/one/holdfast", "/two/holdfast"):
        apply_change(plan_install(agent, SettingsScope.USER, places, [place, "hook", "claude-code"]), places.environ)
    assert "/one/" not in path.read_text() and path.read_text().count("/two/holdfast") == len(agent.entries(["x"]))
    apply_change(plan_uninstall(agent, SettingsScope.USER, places), places.environ)
    assert path.read_text() == TEXTS["comments"]


def test_a_handler_in_a_group_with_others_goes_alone(places: SettingsPaths) -> None:
    other = {"type": "command", "command": "echo"}
    ours = {"type": "command", "command": "/x/holdfast", "args": ["hook", "claude-code"]}
    text = json.dumps({"hooks": {"Stop": [{"hooks": [other, ours]}], "PreToolUse": [{"hooks": [ours]}]}}, indent=2)
    assert json.loads(without_entries(text, "claude-code")) == {"hooks": {"Stop": [{"hooks": [other]}]}}


def test_entries_of_another_agent_are_not_ours() -> None:
    text = json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "holdfast hook gemini"}]}]}})
    assert without_entries(text, "codex") == text and found_entries(text, "gemini")


def test_a_link_to_the_settings_stays_a_link(places: SettingsPaths) -> None:
    agent = find_agent("claude-code")
    real = places.home / "dotfiles" / "claude.json"
    real.parent.mkdir()
    real.write_text("{}\n")
    link = agent.settings(places, SettingsScope.USER)
    link.parent.mkdir()
    link.symlink_to(os.path.relpath(real, link.parent))
    change = plan_install(agent, SettingsScope.USER, places, words("claude-code"))
    apply_change(change, places.environ)
    assert link.is_symlink() and json.loads(real.read_text())["hooks"]
    assert change.backup.read_text() == "{}\n"
    assert sorted(path.name for path in real.parent.iterdir()) == ["claude.json"]


def test_a_pipe_in_the_place_of_settings_holds_nobody_up(places: SettingsPaths) -> None:
    agent = find_agent("claude-code")
    path = agent.settings(places, SettingsScope.USER)
    path.parent.mkdir()
    os.mkfifo(path)
    with pytest.raises(Refused, match="is not a file"):
        plan_install(agent, SettingsScope.USER, places, words("claude-code"))
    with pytest.raises(Refused, match="is not a file"):
        plan_uninstall(agent, SettingsScope.USER, places)


@pytest.mark.parametrize("data", [b'{"a": ', b"\xff\xfe", b'{"hooks": []}', b'{"hooks": {"Stop": {}}}', b"[]"])
def test_settings_that_cannot_be_understood_are_left_alone(data: bytes, places: SettingsPaths) -> None:
    agent = find_agent("claude-code")
    path = agent.settings(places, SettingsScope.USER)
    path.parent.mkdir()
    path.write_bytes(data)
    with pytest.raises(Refused, match=str(path)) as caught:
        plan_install(agent, SettingsScope.USER, places, words("claude-code"))
    assert "Nothing was changed" in caught.value.hint
    assert path.read_bytes() == data


def test_file_changed_after_the_plan_is_not_overwritten(places: SettingsPaths) -> None:
    agent = find_agent("gemini")
    path = agent.settings(places, SettingsScope.USER)
    path.parent.mkdir()
    path.write_text("{}")
    change = plan_install(agent, SettingsScope.USER, places, words("gemini"))
    path.write_text('{"a": 1}')
    with pytest.raises(Conflict):
        apply_change(change, places.environ)
    assert path.read_text() == '{"a": 1}'


def test_a_plugin_of_somebody_else_is_not_replaced(places: SettingsPaths) -> None:
    agent = find_agent("opencode")
    path = agent.settings(places, SettingsScope.PROJECT)
    path.parent.mkdir(parents=True)
    path.write_text("export const Mine = 1\n")
    with pytest.raises(Refused):
        plan_install(agent, SettingsScope.PROJECT, places, words("opencode"))
    assert not plan_uninstall(agent, SettingsScope.PROJECT, places)


@pytest.mark.parametrize("name", AGENT_NAMES)
def test_what_is_installed_does_not_change_between_versions(name: str) -> None:
    """Codex and Gemini ask the user again for every entry that changed: a change here is one that users notice."""
    agent = find_agent(name)
    given = ["/usr/bin/holdfast", "hook", name]
    text = agent.own_file(given) if agent.own_file else json.dumps([[e.event, e.value] for e in agent.entries(given)])
    kept = Path(__file__).with_name("entries") / name
    assert text == kept.read_text()


OURS = '{"type": "command", "command": "/o/holdfast", "args": ["hook", "claude-code"]}'
THEIRS = '{"hooks": [{"type": "command", "command": "say"}]}'


@pytest.mark.parametrize(
    "text",
    [
        f'{{"hooks": {{"Stop": [\n // c\n {{"hooks": [{OURS}]}}, {THEIRS}\n]}}}}',
        f'{{"hooks": {{"Stop": [\n {THEIRS}, // c\n {{"hooks": [{OURS}]}}]}}}}',
        f'{{"hooks": {{"Stop": [{THEIRS}], // c\n "End": [{{"hooks": [{OURS}]}}]}}}}',
    ],
)
def test_what_stands_behind_ours_does_not_get_into_a_comment(text: str) -> None:
    left = without_entries(text, "claude-code")
    assert parse(left).plain() == {"hooks": {"Stop": [json.loads(THEIRS)]}}
    assert "// c" in left


def test_duplicate_key_that_agents_read_gets_our_entries() -> None:
    agent = find_agent("claude-code")
    text = with_entries(f'{{"hooks": {{}}, "hooks": {{"Stop": [{THEIRS}]}}}}', agent, agent.entries(words(agent.name)))
    read = json.loads(text)["hooks"]
    assert read["Stop"][0] == json.loads(THEIRS) and len(read["Stop"]) == 2 and "PreToolUse" in read


def test_ambiguous_settings_text_is_refused() -> None:
    twice = f'{{"hooks": {{"Stop": [{THEIRS}], "Stop": [{{"hooks": [{OURS}]}}]}}}}'
    with pytest.raises(NotJSON, match="duplicated"):
        without_entries(twice, "claude-code")


@pytest.mark.parametrize(
    "command",
    [
        "echo holdfast hook claude-code",
        "/o/holdfast hook claude-code && say done",
        "say done; /o/holdfast hook claude-code",
    ],
)
def test_a_command_of_the_users_that_also_runs_us_is_the_users(command: str) -> None:
    text = json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}})
    assert without_entries(text, "claude-code") == text


def test_uninstalling_twice_does_not_install(places: SettingsPaths) -> None:
    agent, file = find_agent("claude-code"), places.home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text('{"a": 1}')
    apply_change(plan_install(agent, SettingsScope.USER, places, words("claude-code")), places.environ)
    file.write_text(file.read_text().replace('"a": 1', '"a": 2'))
    for _ in range(2):
        apply_change(plan_uninstall(agent, SettingsScope.USER, places), places.environ)
        assert json.loads(file.read_text()) == {"a": 2}


@pytest.mark.parametrize("name", ["claude-code", "opencode"])
def test_uninstall_removes_entries_of_two_versions(places: SettingsPaths, name: str) -> None:
    agent = find_agent(name)
    file = agent.settings(places, SettingsScope.USER)
    apply_change(plan_install(agent, SettingsScope.USER, places, words(name)), places.environ)
    file.write_text(file.read_text() + "\n")
    apply_change(plan_install(agent, SettingsScope.USER, places, ["/new/holdfast", "hook", name]), places.environ)
    apply_change(plan_uninstall(agent, SettingsScope.USER, places), places.environ)
    assert not file.exists() or "holdfast" not in file.read_text()


def test_concurrent_installs_leave_no_partial_file(places: SettingsPaths) -> None:
    agent, file = find_agent("claude-code"), places.home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"mine": "x" * 200_000}))

    def meddle(number: int) -> None:
        for turn in range(12):
            given = [f"/{number}/holdfast", "hook", "claude-code"]
            with contextlib.suppress(Conflict):
                if turn % 2:
                    apply_change(plan_uninstall(agent, SettingsScope.USER, places), places.environ)
                else:
                    apply_change(plan_install(agent, SettingsScope.USER, places, given), places.environ)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(meddle, range(4)))
    apply_change(plan_uninstall(agent, SettingsScope.USER, places), places.environ)
    assert json.loads(file.read_text()) == {"mine": "x" * 200_000}
    assert os.listdir(file.parent) == ["settings.json"]


OTHER = 12345  # a user, and a group, that root installs for


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("existed", [False, True])
@pytest.mark.parametrize("scope", SettingsScope)
def test_under_sudo_everything_belongs_to_the_user(places: SettingsPaths, scope: SettingsScope, existed: bool) -> None:
    agent = find_agent("claude-code")
    path = agent.settings(places, scope)
    if existed:
        path.parent.mkdir()
        path.write_text("{}\n")
        path.chmod(0o640)
    for each in (places.home, *places.home.rglob("*"), places.project, *places.project.rglob("*")):
        os.chown(each, OTHER, OTHER + (each == path))
    write_shim(places.environ, "/usr/bin/python3")
    apply_change(plan_install(agent, scope, places, words("claude-code")), places.environ)
    for top in (places.home, places.project):
        for folder, folders, files in os.walk(top):
            for name in (*folders, *files):
                made = Path(folder, name)
                assert made.lstat().st_uid == OTHER, made
    status = path.stat()
    assert (status.st_gid, status.st_mode & 0o777) == ((OTHER + 1, 0o640) if existed else (OTHER, 0o644))
    apply_change(plan_uninstall(agent, scope, places), places.environ)
    assert path.exists() == existed
    if existed:
        assert (path.stat().st_uid, path.stat().st_gid) == (OTHER, OTHER + 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_an_earlier_install_left_to_root_is_given_back(places: SettingsPaths) -> None:
    agent = find_agent("claude-code")
    apply_change(plan_install(agent, SettingsScope.USER, places, words("claude-code")), places.environ)
    os.chown(places.home, OTHER, OTHER)
    write_shim(places.environ, "/usr/bin/python3")
    own = Path(state_folder(places.environ))
    assert {each.lstat().st_uid for each in (own, *own.rglob("*"))} == {OTHER}
