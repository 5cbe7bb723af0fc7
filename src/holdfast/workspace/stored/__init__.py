"""How checkpoints are stored and found: records, trees, chunks, state, the catalog."""
