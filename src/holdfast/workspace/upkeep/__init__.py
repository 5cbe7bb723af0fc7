"""Maintenance of a store: prune, purge, usage, verify."""
