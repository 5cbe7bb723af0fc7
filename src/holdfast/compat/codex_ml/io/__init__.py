"""`codex_ml.io`."""
