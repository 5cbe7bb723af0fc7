"""The tables of an SQLite file, and the way to them from those of older versions.

What a commit changes is what it costs, page by page: a session's newest row and how many it has are found in the index
`newest`, and the greatest number that was ever given is written to `numbers` only when rows go.
"""

from __future__ import annotations

VERSION = 2
_ROWS = """
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY, tenant TEXT NOT NULL, session TEXT NOT NULL, family INTEGER NOT NULL,
    latest INTEGER NOT NULL, saved_at INTEGER NOT NULL, deleted INTEGER NOT NULL, UNIQUE (tenant, session)
);
CREATE INDEX families ON sessions (family, tenant);
CREATE TABLE checkpoints (
    sequence INTEGER PRIMARY KEY, owner INTEGER NOT NULL, namespace TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL, parent_id TEXT, run_id TEXT, saved_at INTEGER NOT NULL, digest BLOB NOT NULL,
    meta BLOB NOT NULL, refs BLOB NOT NULL, shape BLOB NOT NULL,
    first_part INTEGER NOT NULL, last_part INTEGER NOT NULL,
    UNIQUE (owner, namespace, checkpoint_id)
);
CREATE INDEX newest ON checkpoints (owner, sequence);
CREATE INDEX runs ON checkpoints (run_id) WHERE run_id IS NOT NULL;
CREATE TABLE numbers (greatest INTEGER NOT NULL);
INSERT INTO numbers VALUES (0);
"""
_REST = """
CREATE TABLE parts (
    number INTEGER PRIMARY KEY, tenant TEXT NOT NULL, family INTEGER NOT NULL, name BLOB NOT NULL, refs BLOB NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX part_names ON parts (family, name, tenant);
CREATE TABLE writes (
    tenant TEXT NOT NULL, session TEXT NOT NULL, namespace TEXT NOT NULL, checkpoint_id TEXT NOT NULL,
    task_id TEXT NOT NULL, idx INTEGER NOT NULL, task_path TEXT NOT NULL, channel TEXT NOT NULL, data BLOB NOT NULL
);
CREATE UNIQUE INDEX write_places ON writes (tenant, session, namespace, checkpoint_id, task_id, idx);
"""
_FROM_1 = """
DROP INDEX families;
DROP INDEX newest;
DROP INDEX runs;
ALTER TABLE sessions RENAME TO old_sessions;
ALTER TABLE checkpoints RENAME TO old_checkpoints;
"""
_INTO_2 = """
INSERT INTO sessions SELECT number, tenant, session, family, latest, saved_at, deleted FROM old_sessions;
INSERT INTO checkpoints SELECT * FROM old_checkpoints;
UPDATE numbers SET greatest = ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'old_checkpoints'), 0);
DROP TABLE old_sessions;
DROP TABLE old_checkpoints;
"""
_WAYS = {0: _ROWS + _REST, 1: _FROM_1 + _ROWS + _INTO_2}


def statements_from(version: int) -> list[str]:
    """What makes the tables of a file (0: it has none) those of this version."""
    return [each for each in map(str.strip, _WAYS[version].split(";")) if each]
