"""How the command line words each remedy: with its commands and options. Loaded when there is an error to show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError
from holdfast.remedies import word_hint, word_remedy

if TYPE_CHECKING:
    from holdfast.workspace.upkeep.growth import Notice

COMMAND_LINE = {
    "accept_loss": "Pass --accept-loss.",
    "allow_empty": "Pass --allow-empty to remove every document from the index.",
    "allow_home": "Pass --allow-home if you mean this folder.",
    "bisect_in_place": "Pass --in-place to run it in the workspace itself.",
    "blame_checkpoint": "Name a checkpoint that has it: holdfast blame PATH REF.",
    "compact": "Then run `holdfast compact`.",
    "delete_checkpoints": "Delete checkpoints with `holdfast rm`.",
    "files_only": "Leave out --with-conversation to restore the files alone.",
    "forked_folder": "Name a folder that `holdfast fork` made of this project.",
    "give_keys": "Pass the key file with --keys, or in HOLDFAST_FLOW_KEYS.",
    "index_init": "Describe one in holdfast.toml: holdfast index init",
    "keep_mine": "Also pass --keep-mine.",
    "leave_out_keys": "Leave out --keys and HOLDFAST_FLOW_KEYS to read it as it is.",
    "limit_embeds": "Set usd_per_mtok for the model, or pass --max-embeds instead of --max-usd.",
    "list": "See `holdfast log`.",
    "list_all": "List every checkpoint with: holdfast log --all",
    "list_sessions": "List them with `holdfast log LOCATION`.",
    "name_namespace": "Pass --namespace NAME.",
    "name_paths": "Paths come after --, as in: holdfast diff latest -- src/",
    "name_session": "Pass --session ID; `holdfast log LOCATION` lists the sessions.",
    "name_tenant": "Tenant {tenant} has a session of this id: pass --tenant.",
    "no_agent": "Check whether hooks are installed: holdfast doctor. To take back changes hunk by hunk:"
    " holdfast restore -p",
    "no_restore": "To go back to the last checkpoint: holdfast restore latest. To take back what an agent did:"
    " holdfast undo --agent.",
    "other_store": "Pass another --store.",
    "purge_secret": "Remove it with: holdfast purge --secret {id}",
    "allow_check": "Read it, then allow it with: holdfast check --allow",
    "configure_check": 'Set one in holdfast.toml, such as check = "pytest"; then run: holdfast check',
    "list_secrets": "List them with: holdfast secrets",
    "purge_lines": "Pass --lines to remove them.",
    "restore_missing": "Bring it back with: holdfast -C {path} restore latest",
    "repair_index": "Run `holdfast index verify --repair`.",
    "save_first": "Make the first with `holdfast save`.",
    "search_literally": "Leave out -E to search for the text itself.",
    "skip_damaged": "Pass --skip-damaged to {verb} the rest, or use another checkpoint.",
    "trust_store": "Pass --trust-store if you trust the person who made it.",
    "turns_undone": "`holdfast undo` brings back the last one. To go further back: holdfast restore REF",
    "usage": "See what takes space: holdfast usage",
    "verify": "Run `holdfast verify` to see which checkpoints are affected.",
}


def hint_of(error: HoldfastError) -> str:
    """What to do about an error, on the command line."""
    return word_hint(error, COMMAND_LINE)


def sentence(error: HoldfastError) -> str:
    """An error in one line: what happened, and what to do next."""
    hint = hint_of(error)
    return f"{error.message}. {hint}" if hint else error.message


def notice_lines(notices: Iterable[Notice]) -> list[str]:
    """What to tell after a save, a line each."""
    pairs = [(each.message, word_remedy(each.remedy, COMMAND_LINE)) for each in notices]
    return [". ".join(filter(None, pair)) for pair in pairs]


def error_document(error: HoldfastError) -> dict[str, Any]:
    """An error as `--json` prints it."""
    remedy = error.remedy
    return {"message": error.message, "hint": hint_of(error), "remedy": remedy.code if remedy else None}
