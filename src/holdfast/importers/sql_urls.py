"""URLs of databases as other tools write them."""

from __future__ import annotations


def postgres_url(source: str) -> str | None:
    """The plain form of a PostgreSQL URL, such as `postgresql+asyncpg://…`; None for any other source."""
    scheme, mark, rest = source.partition("://")
    database = scheme.partition("+")[0]
    return f"postgresql://{rest}" if mark and database in ("postgresql", "postgres") else None
