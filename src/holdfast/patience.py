"""How long a network that does not answer is waited for."""

from __future__ import annotations

from collections.abc import Container


def whole_seconds(timeout: float) -> int:
    """A timeout within what PostgreSQL takes, and can count in milliseconds."""
    return int(min(max(2, timeout), 1_000_000))


def of_postgres(timeout: float, given: Container[str]) -> dict[str, int]:
    """Options of a connection that were not given: how soon it is taken to be broken. Left alone, Linux waits hours."""
    seconds = whole_seconds(timeout)
    own = {
        "connect_timeout": seconds, "tcp_user_timeout": seconds * 1000,
        "keepalives_idle": seconds, "keepalives_interval": seconds // 2,
    }  # fmt: skip
    return {name: value for name, value in own.items() if name not in given}
