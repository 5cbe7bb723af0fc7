"""URLs of databases as other tools write them, and the errors of these databases."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from holdfast.errors import Extra
from holdfast.importers import sqlite_source


def postgres_url(source: str) -> str | None:
    """The plain form of a PostgreSQL URL, such as `postgresql+asyncpg://…`; None for any other source."""
    scheme, mark, rest = source.partition("://")
    database = scheme.partition("+")[0]
    return f"postgresql://{rest}" if mark and database in ("postgresql", "postgres") else None


def postgres_columns(url: str, tables: Iterable[str]) -> dict[str, set[str]]:
    """The columns of those of these tables that a database has."""
    with Extra("postgres"):
        from holdfast.durable import postgres

    found: dict[str, set[str]] = {}
    with postgres.reading(url) as connection:
        rows = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND table_name = ANY (%s)",
            ([*tables],),
        )
        for table, column in rows:
            found.setdefault(str(table), set()).add(str(column))
    return found


@contextlib.contextmanager
def sql_errors(source: str) -> Iterator[None]:
    """Raise our errors in place of those of PostgreSQL or SQLite, whichever a source is in."""
    if postgres_url(source) is None:
        with sqlite_source.translated(source):
            yield
        return
    with Extra("postgres"):
        from holdfast.durable import postgres

    with postgres.translated():
        yield
