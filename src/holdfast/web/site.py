"""What all pages share."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from holdfast.web.jobs import Jobs

if TYPE_CHECKING:
    from holdfast.model import Restored
    from holdfast.web.places import NamedLocations
    from holdfast.web.rendering import Templates
    from holdfast.web.security import ServerKeys


class LastAction(NamedTuple):
    """What this page did last in a workspace."""

    words: str
    restored: Restored


@dataclass(slots=True)
class Site:
    """The locations, the secrets and the templates of one server."""

    places: NamedLocations
    keys: ServerKeys
    templates: Templates
    read_only: bool = False
    done: dict[str, LastAction] = field(default_factory=dict)
    """By key of a workspace."""
    jobs: Jobs = field(default_factory=Jobs)
    lock: threading.Lock = field(default_factory=threading.Lock)
