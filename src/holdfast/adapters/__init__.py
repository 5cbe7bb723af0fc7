"""Adapters for other programs, a module or package for each; none is loaded before it is used."""
