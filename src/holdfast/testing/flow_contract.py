"""What every `StateStore` does, through the verbs that people call; whoever writes a back end inherits this.

The suite gives two fixtures: `open_store`, which opens the same back end again and again, for any tenant, and `stores`,
which makes back ends that have nothing to do with each other.
"""

from __future__ import annotations

from holdfast.testing.flow_beside import BesideContract
from holdfast.testing.flow_copying import CopyingContract
from holdfast.testing.flow_crowds import CrowdContract
from holdfast.testing.flow_forking import ForkingContract
from holdfast.testing.flow_keeping import KeepingContract
from holdfast.testing.flow_parents import ParentsContract
from holdfast.testing.flow_reading import ReadingContract
from holdfast.testing.flow_saving import SavingContract
from holdfast.testing.flow_scenes import NOON, OpenStore, conversation, point

__all__ = ["NOON", "OpenStore", "StateStoreContract", "conversation", "point"]


class StateStoreContract(
    SavingContract,
    KeepingContract,
    CrowdContract,
    CopyingContract,
    BesideContract,
    ForkingContract,
    ParentsContract,
    ReadingContract,
):
    """The promises of `holdfast.flow.store`, and what the surface says on top of them."""
