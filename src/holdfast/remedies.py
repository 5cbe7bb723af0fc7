"""How the library words each remedy: what a Python caller does next.

Each face has a table with the same codes: this one, `cli/remedies.py`, `mcp/remedies.py`. Loaded when a hint is read,
never at start-up.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.errors import HoldfastError, Remedy

LIBRARY = {
    "accept_loss": "Pass accept_loss=True.",
    "allow_empty": "Pass allow_empty=True to remove every document from the index.",
    "allow_home": "Pass allow_home=True if you mean this folder.",
    "bisect_in_place": "Pass in_place=True to test in the workspace itself.",
    "blame_checkpoint": "Name a checkpoint that has it: blame(path, ref).",
    "compact": "Then call compact().",
    "delete_checkpoints": "Delete checkpoints with delete().",
    "files_only": "Restore the files without the conversation.",
    "forked_folder": "Name a folder that fork() made of this project.",
    "give_keys": "Pass keys=….",
    "index_init": "Describe one in the [index] table of holdfast.toml.",
    "keep_mine": "Also pass keep_mine=True.",
    "leave_out_keys": "Open it without keys, or copy it to a new encrypted store first.",
    "limit_embeds": "Set usd_per_mtok for the model, or pass max_embeds instead of max_usd.",
    "list": "list() shows the checkpoints.",
    "list_all": "list(safety=True) shows every checkpoint.",
    "list_sessions": "list() shows the sessions.",
    "name_namespace": "Pass the option namespace.",
    "name_paths": "Pass paths as paths=[…].",
    "name_session": "Pass the option session; list() shows the sessions.",
    "name_tenant": "Tenant {tenant} has a session of this id: pass the option tenant.",
    "no_agent": "Save with actor=…, or install the hooks of the agent.",
    "no_restore": 'restore("latest") restores the last checkpoint; list(safety=True) shows every checkpoint.',
    "other_store": "Pass another store=….",
    "purge_secret": 'purge(secrets=["{id}"]) removes it.',
    "allow_check": "Have a person call allow_check(command).",
    "configure_check": "Pass check_command, or set check in holdfast.toml; then call check().",
    "list_secrets": "secrets() scans the rest and lists all.",
    "purge_lines": "Pass lines=True to remove them.",
    "restore_missing": "Open {path} with missing_ok=True, and restore a checkpoint.",
    "repair_index": "Call verify(repair=True).",
    "save_first": "Call save() first.",
    "search_literally": "Leave out regex=True to search for the text itself.",
    "skip_damaged": "Pass skip_damaged=True to {verb} the rest, or use another checkpoint.",
    "trust_store": "Pass trust_store=True if you trust the person who made it.",
    "turns_undone": "undo() brings back the last one.",
    "usage": "usage() shows what takes space.",
    "verify": "Run verify() to see which checkpoints are affected.",
}


def word_hint(error: HoldfastError, table: Mapping[str, str] = LIBRARY) -> str:
    """What to do about an error, in the words of one face."""
    return " ".join(filter(None, (error.advice, word_remedy(error.remedy, table))))


def word_remedy(remedy: Remedy | None, table: Mapping[str, str] = LIBRARY) -> str:
    """What a remedy says, in the words of one face; empty for none."""
    return table[remedy.code].format_map(remedy.arguments) if remedy else ""
