"""Stores of vectors of others, one file each."""
