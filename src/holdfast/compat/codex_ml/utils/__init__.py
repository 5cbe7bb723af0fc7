"""`codex_ml.utils`."""
