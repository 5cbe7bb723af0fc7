"""The adapters, each with the real framework."""
