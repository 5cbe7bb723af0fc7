"""Checkpoints before the tools of agent frameworks: one file each, with the same `Checkpoints` in it."""
