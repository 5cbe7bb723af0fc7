"""How checkpoints are written down and found again: records, trees, parts, state, the catalog."""
