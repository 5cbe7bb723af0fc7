"""`codeweaver.providers`."""
