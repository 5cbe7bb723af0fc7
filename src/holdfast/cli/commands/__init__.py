"""One file per command, named after it. Imported only when the command is run."""
