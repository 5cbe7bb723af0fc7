"""Keeping a store small and sound: prune, purge, usage, verify."""
