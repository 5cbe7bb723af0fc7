"""`codeweaver.engine.services`."""
