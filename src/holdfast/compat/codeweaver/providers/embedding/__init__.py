"""`codeweaver.providers.embedding`."""
