"""Agents and their hooks, driven as real processes in a home folder of their own."""
