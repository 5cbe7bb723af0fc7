"""Ledgers by what they are called. A back end's file, and with it its driver, is loaded when it is named."""

from __future__ import annotations

import os
from urllib.parse import unquote

from holdfast.errors import Extra, Refused
from holdfast.indexing.ledger import Ledger
from holdfast.indexing.ledger.sqlite import SQLiteLedger


def open_ledger(place: str | os.PathLike[str]) -> Ledger:
    """Open the ledger in a file, or at a postgresql:// URL; it is made if there is none.

    Each schema of a database has one: `#name` at the end of a URL names another than the usual.
    """
    scheme = place.partition("://")[0] if isinstance(place, str) and "://" in place else ""
    if scheme in ("postgresql", "postgres"):
        with Extra("postgres"):
            from holdfast.indexing.ledger.postgres import PostgresLedger
        url, schema = _schema(str(place))
        return PostgresLedger(url, schema=schema) if schema else PostgresLedger(url)
    if scheme:
        raise Refused(f"there is no ledger at {scheme}://", hint="Name a file, or postgresql://…")
    return SQLiteLedger(place)


def _schema(place: str) -> tuple[str, str]:
    url, _, name = place.rpartition("#")
    is_name = url and not set(name) & set("/@")  # a password may have such a sign, too
    return (url, unquote(name)) if is_name else (place, "")
