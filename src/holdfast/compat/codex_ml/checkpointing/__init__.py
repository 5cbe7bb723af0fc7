"""`codex_ml.checkpointing`."""
