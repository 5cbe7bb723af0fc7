"""`codeweaver.providers.types`."""
