"""For tests, ours and those of others: disks that fail on purpose, and contracts to hold an implementation to.

faults            disks that kill, fail or forget at the n-th write
medium            what a disk still holds after a power loss
contracts         what a `Disk` does, and when two folders are the same (P2)
flow_contract     what a `StateStore` does; its parts are the other `flow_…` files, `flow_scenes` are their helpers
ledger_contract   what a `Ledger` of an index does
store_contract    what a `VectorStore` does
leaks             file descriptors that are still open
"""
