"""llmfy's checkpointers over our stores: async, with its constructors, for its flow engine or any other caller.

llmfy's engine hands over objects of its own `Checkpoint` class; what comes back has the same attributes.
"""

from __future__ import annotations

import base64
import builtins
import contextlib
import copy
import copyreg
import warnings
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self

from holdfast import flow
from holdfast.compat.llmfy.checkpoints import Checkpoint, from_flow, to_flow
from holdfast.errors import Refused
from holdfast.flow.states import States
from holdfast.retention import Policy
from holdfast.serde import Keys, Registry, Serde, default_registry
from holdfast.serde.registry import Registration
from holdfast.serde.types import Unstorable
from holdfast.validation import check_limit

DEFAULT_MAX_STATE_BYTES = 25 * 1024 * 1024
_MOST_STATE_BYTES = 1 << 40
_IN_MEMORY = ("", "/", "/:memory:")
"""What follows `sqlite://` in an SQLAlchemy URL without a file."""
REPLACEMENTS = {
    "BaseCheckpointer": "holdfast.flow.BaseCheckpointer",
    "Checkpoint": "holdfast.flow.Checkpoint",
    "CheckpointMetadata": "holdfast.flow.CheckpointMetadata",
    "InMemoryCheckpointer": "holdfast.flow.InMemoryCheckpointer",
    "RedisCheckpointer": "holdfast.flow.RedisCheckpointer",
    "SQLCheckpointer": "holdfast.flow.open_checkpointer",
}
"""What to import instead of each name: the modules that have them deprecate them."""


class BaseCheckpointer(flow.BaseCheckpointer):
    """What llmfy's flow engine asks of a place for its checkpoints."""

    requires_serialization: bool = True
    """Whether the engine turns registered classes into JSON values before it saves."""


class _Checkpointer(BaseCheckpointer):
    """The five verbs over a Holdfast store, which is opened when it is first used, and again after `close`."""

    def __init__(
        self, open_: Callable[[], States], *, max_checkpoints: int | None = None, ttl_seconds: int | None = None
    ) -> None:
        check_limit(max_checkpoints, "max_checkpoints_per_session", least=1)
        check_limit(ttl_seconds, "ttl_seconds", least=1)
        self._open = open_
        self._opened: flow.Checkpointer | None = None
        self._policies = [
            *([] if max_checkpoints is None else [Policy(keep_last=max_checkpoints)]),
            *([] if ttl_seconds is None else [Policy(keep_for=timedelta(seconds=ttl_seconds))]),
        ]

    @property
    def checkpointer(self) -> flow.Checkpointer:
        """The same store with all verbs: fork, diff, prune, verify …"""
        if self._opened is None:
            self._opened = flow.Checkpointer(self._open)
        return self._opened

    async def save(self, checkpoint: Any) -> None:
        """Save a checkpoint, then delete what `max_checkpoints_per_session` and `ttl_seconds` do not keep.

        The same checkpoint saved again changes nothing; Conflict if another one has its id.
        """
        saved = to_flow(checkpoint)
        if not self.requires_serialization:  # else the engine has made a copy
            saved = flow.Checkpoint(saved.metadata, copy.deepcopy(saved.state))
        await self.checkpointer.save(saved)
        for policy in self._policies:
            await self.checkpointer.prune(policy, saved.metadata.session_id)

    async def load(self, session_id: str, checkpoint_id: str | None = None) -> Any:
        """Return a checkpoint of this session by its id, or the one saved last; None if there is none."""
        found = await self.checkpointer.load(session_id, checkpoint_id or None)
        return None if found is None else from_flow(found)

    async def list(self, session_id: str, limit: int = 10) -> builtins.list[Any]:
        """Return the checkpoints of a session, last saved first."""
        return [from_flow(each) for each in await self.checkpointer.list(session_id, limit)]

    async def list_by_run(self, session_id: str, run_id: str, limit: int = 100) -> builtins.list[Checkpoint]:
        """Return the checkpoints that one `invoke` or `stream` saved, last saved first."""
        found = await self.checkpointer.list(session_id, limit, run_id=run_id)  # type: ignore[call-arg]  # of `States`
        return [from_flow(each) for each in found]

    async def delete(self, session_id: str, checkpoint_id: str | None = None) -> None:
        """Delete one checkpoint of a session, or all; the session's id can be used again."""
        await self.checkpointer.delete(session_id, checkpoint_id or None)

    async def clear_all(self) -> None:
        """Delete everything."""
        await self.checkpointer.clear_all()

    async def close(self) -> None:
        """Close the store. The next call opens it again."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()

    async def __aenter__(self) -> Self:
        await self.checkpointer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class InMemoryCheckpointer(_Checkpointer):
    """Checkpoints that end with the process. Objects of any class with plain attributes may be in a state."""

    requires_serialization = False

    def __init__(self, max_checkpoints_per_session: int | None = None, ttl_seconds: int | None = None) -> None:
        self.max_checkpoints_per_session = max_checkpoints_per_session
        self.ttl_seconds = ttl_seconds
        states = flow.open_states("memory://", registry=_LiveClasses())
        super().__init__(lambda: states, max_checkpoints=max_checkpoints_per_session, ttl_seconds=ttl_seconds)

    def get_stats(self) -> dict[str, Any]:
        """Return how many sessions and checkpoints there are."""
        per_session = {each.session_id: each.checkpoints for each in self.checkpointer.states.sessions(None)}
        return {
            "total_sessions": len(per_session),
            "total_checkpoints": sum(per_session.values()),
            "checkpoints_per_session": per_session,
        }

    async def close(self) -> None:
        """Do nothing: the checkpoints stay until the process ends."""


class SQLCheckpointer(_Checkpointer):
    """Checkpoints in SQLite or PostgreSQL, by an SQLAlchemy URL; SQLAlchemy itself is not needed."""

    def __init__(
        self,
        connection_string: str,
        echo: bool = False,
        compress: bool = False,
        encryption_key: bytes | str | None = None,
        max_state_bytes: int | None = DEFAULT_MAX_STATE_BYTES,
        max_checkpoints_per_session: int | None = None,
        ttl_seconds: int | None = None,
    ) -> None:
        """`encryption_key`: a Fernet key. `echo` has no effect, because there is no SQLAlchemy that could echo."""
        if echo:
            warnings.warn("echo has no effect: Holdfast does not use SQLAlchemy", UserWarning, stacklevel=2)
        self.connection_string = connection_string
        self.max_checkpoints_per_session = max_checkpoints_per_session
        self.ttl_seconds = ttl_seconds
        url = _store_url(connection_string)
        options = _options(compress, encryption_key, max_state_bytes)
        open_ = (
            _kept(flow.open_states(url, **options)) if url == "memory://" else lambda: flow.open_states(url, **options)
        )
        super().__init__(open_, max_checkpoints=max_checkpoints_per_session, ttl_seconds=ttl_seconds)


class RedisCheckpointer(_Checkpointer):
    """Checkpoints in Redis."""

    def __init__(
        self,
        redis_url: str = "redis://localhost:6379/0",
        prefix: str = "llmfy_checkpoint:",
        ttl: int | None = None,
        compress: bool = False,
        encryption_key: bytes | str | None = None,
        max_state_bytes: int | None = DEFAULT_MAX_STATE_BYTES,
        max_checkpoints_per_session: int | None = None,
    ) -> None:
        """`ttl`: the seconds after which a session into which nothing was saved is gone as a whole."""
        check_limit(ttl, "ttl")
        self.redis_url = redis_url
        self.prefix = prefix
        self.ttl = ttl
        self.max_checkpoints_per_session = max_checkpoints_per_session
        options = _options(compress, encryption_key, max_state_bytes)
        lifetime = timedelta(seconds=ttl) if ttl else None  # 0 is no expiration, as in llmfy
        super().__init__(
            lambda: flow.open_states(redis_url, prefix=prefix, ttl=lifetime, **options),
            max_checkpoints=max_checkpoints_per_session,
        )


def _kept(states: States) -> Callable[[], States]:
    return lambda: states


def _store_url(connection_string: str) -> str:
    """Return our URL for one of SQLAlchemy. Refused for a database that we do not have."""
    scheme, _, rest = connection_string.partition("://")
    database = scheme.partition("+")[0]
    if database == "sqlite" and rest in _IN_MEMORY:
        return "memory://"
    if database not in ("sqlite", "postgresql", "postgres"):
        raise Refused(
            f"{database} is not supported", hint="Use sqlite:///state.db or postgresql://…, or keep llmfy's class."
        )
    return connection_string


def _options(compress: bool, encryption_key: bytes | str | None, max_state_bytes: int | None) -> dict[str, Any]:
    return {
        "compress": compress,
        "keys": None if encryption_key is None else Keys({"llmfy": _key(encryption_key)}),
        "max_state_bytes": _MOST_STATE_BYTES if max_state_bytes is None else max_state_bytes,
    }


def _key(fernet: bytes | str) -> bytes:
    """Return the 32 bytes of a Fernet key."""
    with contextlib.suppress(ValueError):
        if len(key := base64.urlsafe_b64decode(fernet)) == 32:
            return key
    raise Refused(
        "encryption_key is not 32 bytes in URL-safe base64",
        hint="Make one with cryptography.fernet.Fernet.generate_key().",
    )


class _LiveClasses(Registry):
    """Registers the class of every object that is saved, for stores that end with the process.

    Only classes of objects that this process saved become known, so that stored bytes cannot name any other (P7).
    """

    def __init__(self) -> None:
        super().__init__()
        self._table = Serde(default_registry)

    def of_class(self, cls: type) -> Registration | None:
        found = super().of_class(cls) or default_registry.of_class(cls)
        if found is not None or self._table.why_not(cls) is None:
            return found
        name = f"{cls.__module__}.{cls.__qualname__}#{len(self._by_class)}"
        try:
            self.add(cls, name)
        except Refused:
            self.add(cls, name, encode=_attributes, decode=partial(_with_attributes, cls))
        return super().of_class(cls)

    def of_id(self, type_id: str) -> Registration | None:
        return super().of_id(type_id) or default_registry.of_id(type_id)


def _attributes(value: Any) -> Any:
    """Return what `copy` would give a new object of the class. Unstorable if that needs more than attributes."""
    try:
        make, args, *more = value.__reduce_ex__(4)
    except (TypeError, ValueError) as error:
        raise Unstorable(f"it cannot be copied: {error}") from None
    if make is not copyreg.__newobj__ or args != (type(value),) or any(each is not None for each in more[1:]):  # type: ignore[attr-defined]
        raise Unstorable(f"its type is {type(value).__qualname__}, whose objects have more than attributes")
    return more[0] if more else None


def _with_attributes(cls: Any, state: Any) -> Any:
    made = cls.__new__(cls)
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
        return made
    own, slots = state if isinstance(state, tuple) else (state, None)
    for name, value in {**(own or {}), **(slots or {})}.items():
        object.__setattr__(made, name, value)
    return made
