"""Taking the state of a folder: the look at it, the watcher's hint, the reading, the save."""
