"""How the MCP server words each remedy: with its tools, and where no tool does it, with what the user can do."""

from __future__ import annotations

_ASK = "Ask the user to"
_NOT_HERE = "This is not available through MCP."

MCP = {
    "accept_loss": _NOT_HERE,
    "allow_empty": _NOT_HERE,
    "allow_home": f"{_ASK} start the server with --allow-home, if this folder is meant.",
    "bisect_in_place": _NOT_HERE,
    "blame_checkpoint": "Find a checkpoint that has it with checkpoint_search.",
    "compact": f"{_ASK} run `holdfast compact` then.",
    "delete_checkpoints": f"{_ASK} delete checkpoints with `holdfast rm`.",
    "files_only": "Call checkpoint_restore, which restores the files alone.",
    "forked_folder": _NOT_HERE,
    "give_keys": _NOT_HERE,
    "index_init": _NOT_HERE,
    "keep_mine": _NOT_HERE,
    "leave_out_keys": _NOT_HERE,
    "limit_embeds": _NOT_HERE,
    "list": "Call checkpoint_list.",
    "list_all": "Call checkpoint_list with safety=true, which shows every checkpoint.",
    "list_sessions": "List the sessions first.",
    "name_namespace": "Name the namespace.",
    "name_paths": "Give the paths as paths.",
    "name_session": "Name the session.",
    "name_tenant": "Name the tenant {tenant}.",
    "no_agent": "Checkpoints name no agent. Call checkpoint_list.",
    "no_restore": "Call checkpoint_list; checkpoint_preview shows what a restore of one would do.",
    "other_store": f"{_ASK} start the server with another --store.",
    "purge_secret": f"{_ASK} run `holdfast purge --secret {{id}}`.",
    "allow_check": f"{_ASK} run `holdfast check --allow`.",
    "configure_check": f"{_ASK} set check in holdfast.toml, and run `holdfast check`.",
    "list_secrets": f"{_ASK} run `holdfast secrets`.",
    "purge_lines": f"{_ASK} run `holdfast purge --lines`.",
    "restore_missing": f"{_ASK} run `holdfast -C {{path}} restore latest`.",
    "repair_index": _NOT_HERE,
    "save_first": "Call checkpoint_save first.",
    "search_literally": "Call checkpoint_search with the text itself.",
    "skip_damaged": "Choose another checkpoint, or ask the user to {verb} the rest with --skip-damaged.",
    "trust_store": f"{_ASK} start the server with --trust-store, if they trust the person who made the store.",
    "turns_undone": "Call checkpoint_undo to bring back the last one.",
    "usage": f"{_ASK} run `holdfast usage`, which shows what takes space.",
    "verify": f"{_ASK} run `holdfast verify`, which shows the checkpoints that are affected.",
}
