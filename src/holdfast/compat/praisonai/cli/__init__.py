"""Modules of `praisonai.cli`."""
