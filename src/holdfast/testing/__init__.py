"""For tests, ours and those of others: disks that fail on purpose, and contracts to hold an implementation to."""
