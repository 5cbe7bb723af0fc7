"""Bridges to programs of others, each in a room of its own; none is loaded before it is asked for."""
