"""Coding agents: their hooks report when a tool starts and ends, and each time the workspace is saved if it changed.

The agent runs `holdfast hook AGENT`. `client` sends the event to a background helper (`helper`), or to a child that
becomes it; `hook` reads it, asks `attribution` who made the changes, and saves. Nothing is imported here: every hook
loads this. `command_server` runs commands of the command line in the helper, for clients that `client_process` finds to
have the same rights.
"""
