"""Checkpoints as tools of an agent, by the Model Context Protocol on stdin and stdout."""
