"""The skill's scripts."""
