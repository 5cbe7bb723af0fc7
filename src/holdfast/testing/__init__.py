"""For tests, also of other projects: disks that fail on purpose, and contracts that an implementation must pass.

faulty_disks            disks that kill, fail or forget at the n-th write
power_loss            what is left on a disk after a power loss
disk_contract         what a `Disk` does, and when two folders are the same (P2)
flow_contract/    what a `StateStore` does
ledger_contract   what a `Ledger` of an index does
store_contract    what a `VectorStore` does
"""
