"""The `checkpoint-manager` skill: its four scripts, `scripts.checkpoint_manager` and the three beside it.

Of the other three scripts only the names and the tasks are published; their classes here are named after them.
"""
