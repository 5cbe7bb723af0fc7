"""The coding agents: their names, and the folders that show which of them are used on this computer.

Apart from the modules of the agents, so that asking which ones are used loads none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

AGENT_NAMES = ("claude-code", "gemini", "codex", "cursor", "copilot", "opencode", "kilo", "qwen", "droid")
CALLED = {
    "claude": "claude-code", "claudecode": "claude-code", "claude_code": "claude-code", "gemini-cli": "gemini",
    "codex-cli": "codex", "github-copilot": "copilot", "open-code": "opencode",
    "kilocode": "kilo", "kilo-code": "kilo", "qwen-code": "qwen", "factory": "droid", "factory-droid": "droid",
}  # fmt: skip
"""Other names by which people call an agent."""
_FOLDERS: Mapping[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "claude-code": (".claude", (("CLAUDE_CONFIG_DIR", ""),)),
    "gemini": (".gemini", (("GEMINI_CLI_HOME", ".gemini"),)),
    "codex": (".codex", (("CODEX_HOME", ""),)),
    "cursor": (".cursor", ()),
    "copilot": (".copilot", (("COPILOT_HOME", ""),)),
    "opencode": (".config/opencode", (("OPENCODE_CONFIG_DIR", ""), ("XDG_CONFIG_HOME", "opencode"))),
    "kilo": (".config/kilo", (("KILO_CONFIG_DIR", ""), ("XDG_CONFIG_HOME", "kilo"))),
    "qwen": (".qwen", (("QWEN_HOME", ""),)),
    "droid": (".factory", (("FACTORY_HOME_OVERRIDE", ".factory"),)),
}
"""Each agent's own folder, below the home folder, and the variables that name another: the first that is set counts,
with what follows it."""


def data_folder(agent: str, home: Path, environ: Mapping[str, str]) -> Path:
    """The agent's own folder; it exists if the agent is in use."""
    usual, variables = _FOLDERS[agent]
    for variable, below in variables:
        if chosen := environ.get(variable):
            return Path(chosen) / below
    return home / usual
