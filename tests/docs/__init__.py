"""The documentation is held to the code."""
