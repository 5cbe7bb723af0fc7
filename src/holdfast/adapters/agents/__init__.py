"""Coding agents: their hooks tell when a tool begins and ends, and each time the workspace is saved if it changed.

`holdfast hook AGENT` is called by the agent. `client` hands the event to a background helper (`helper`), or to a child
that becomes it; `hook` reads it, asks `windows` whose the changes are, and saves. Nothing is imported here: the client
has milliseconds.
"""
