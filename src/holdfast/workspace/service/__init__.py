"""`CheckpointService`: the workspace for a program that runs an event loop."""
