"""Modules of `praisonai.cli.features`."""
