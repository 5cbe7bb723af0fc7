"""Capturing a folder: the scan, the watcher, the reading, the save."""
