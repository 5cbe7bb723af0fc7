"""The flow surface."""
