"""Every operation interrupted at every call that changes the disk: afterwards it is old or new, and nothing is lost."""
