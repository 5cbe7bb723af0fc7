"""`codex_ml.cli`."""
