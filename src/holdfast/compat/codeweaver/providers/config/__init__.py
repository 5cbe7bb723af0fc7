"""`codeweaver.providers.config`."""
