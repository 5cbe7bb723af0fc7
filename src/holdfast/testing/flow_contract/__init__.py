"""What every `StateStore` does, tested through the verbs that callers use; a back end inherits `StateStoreContract`.

The test suite provides two fixtures: `open_store`, which opens the same back end again and again, for any tenant, and
`stores`, which creates back ends that have nothing to do with each other.

    saving         saving, loading, listing; what a limit costs
    forks          forks, copies, checkpoints that need earlier ones
    retention      deleting, sharing, pruning, expiry
    concurrency    many at once, races, keys, invalid arguments
    fixtures       helpers
"""

from __future__ import annotations

from holdfast.testing.flow_contract.concurrency import ConcurrencyContract
from holdfast.testing.flow_contract.fixtures import NOON, OpenStore, conversation, point
from holdfast.testing.flow_contract.forks import ForksContract
from holdfast.testing.flow_contract.retention import RetentionContract
from holdfast.testing.flow_contract.saving import SavingContract, Work

__all__ = ["NOON", "OpenStore", "StateStoreContract", "Work", "conversation", "point"]


class StateStoreContract(SavingContract, RetentionContract, ConcurrencyContract, ForksContract):
    """The guarantees of `holdfast.flow.store`, and those of the surface on top of them."""
