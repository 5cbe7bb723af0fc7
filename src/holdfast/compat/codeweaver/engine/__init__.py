"""`codeweaver.engine`."""
