"""The tree on disk: which entries there are, what changed, what the rules leave out. Knows nothing of git's format."""
