"""URLs of databases as other tools write them, and the errors of these databases."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from holdfast.errors import Extra
from holdfast.importers import sqlite_source


def postgres_url(source: str) -> str | None:
    """The plain form of a PostgreSQL URL, such as `postgresql+asyncpg://…`; None for any other source."""
    scheme, mark, rest = source.partition("://")
    database = scheme.partition("+")[0]
    return f"postgresql://{rest}" if mark and database in ("postgresql", "postgres") else None


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
