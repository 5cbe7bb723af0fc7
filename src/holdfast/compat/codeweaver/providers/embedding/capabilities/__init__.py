"""`codeweaver.providers.embedding.capabilities`."""
