"""`codex_ml.training`."""
