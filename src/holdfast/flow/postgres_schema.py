"""The tables and functions in PostgreSQL. Each change is one call of a function: one round trip, one transaction.

Locks are taken in one order: the tenant (alone by who clears it), the family (shared by those who add, alone by those
who free), the session. All end with their transaction, so that a pooler between may give each another connection. What
was looked up before a lock is looked up again under it.
"""

from __future__ import annotations

VERSION = 1
LOCK = 0x486F6C6466617374  # taken by whoever makes the tables

TABLES = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE {schema}.version (number int PRIMARY KEY);
CREATE SEQUENCE {schema}.numbers;
CREATE TABLE {schema}.sessions (
    tenant text COLLATE "C", session text COLLATE "C", family bigint NOT NULL, latest bigint NOT NULL,
    checkpoints bigint NOT NULL, saved_at bigint NOT NULL, deleted boolean NOT NULL,
    PRIMARY KEY (tenant, session)
) WITH (fillfactor = 70);
CREATE TABLE {schema}.checkpoints (
    tenant text COLLATE "C", session text COLLATE "C", namespace text COLLATE "C", checkpoint_id text COLLATE "C",
    sequence bigint NOT NULL, parent_id text, run_id text, saved_at bigint NOT NULL, family bigint NOT NULL,
    digest bytea NOT NULL, meta bytea NOT NULL, refs bytea NOT NULL, shape bytea NOT NULL,
    PRIMARY KEY (tenant, session, namespace, checkpoint_id)
);
CREATE UNIQUE INDEX checkpoints_sequence ON {schema}.checkpoints (sequence);
CREATE INDEX checkpoints_newest ON {schema}.checkpoints (tenant, session, sequence);
CREATE INDEX checkpoints_family ON {schema}.checkpoints (family);
CREATE INDEX checkpoints_run ON {schema}.checkpoints (tenant, run_id) WHERE run_id IS NOT NULL;
CREATE TABLE {schema}.parts (
    tenant text COLLATE "C", family bigint, name bytea, refs bytea NOT NULL, data bytea NOT NULL,
    PRIMARY KEY (family, name, tenant)
);
ALTER TABLE {schema}.parts ALTER data SET STORAGE EXTERNAL;
CREATE TABLE {schema}.writes (
    tenant text COLLATE "C", session text COLLATE "C", namespace text COLLATE "C", checkpoint_id text COLLATE "C",
    task_id text COLLATE "C", idx bigint, task_path text NOT NULL, channel text NOT NULL, data bytea NOT NULL,
    PRIMARY KEY (tenant, session, namespace, checkpoint_id, task_id, idx)
);
INSERT INTO {schema}.version VALUES (1);
"""

FUNCTIONS = """
CREATE FUNCTION {schema}.lock_family(t text, f bigint, alone boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(t, 0));
    IF alone THEN
        PERFORM pg_advisory_xact_lock(hashtextextended(t, f));
    ELSE
        PERFORM pg_advisory_xact_lock_shared(hashtextextended(t, f));
    END IF;
END $$;

CREATE FUNCTION {schema}.sweep(t text, f bigint) RETURNS void LANGUAGE sql AS $$
    WITH RECURSIVE live (name) AS (
        SELECT substring(c.refs FROM at FOR 16)
        FROM {schema}.checkpoints c, generate_series(1, length(c.refs), 16) at
        WHERE c.tenant = t AND c.family = f
        UNION
        SELECT substring(p.refs FROM at FOR 16)
        FROM live JOIN {schema}.parts p ON p.family = f AND p.name = live.name AND p.tenant = t,
            generate_series(1, length(p.refs), 16) at
    )
    DELETE FROM {schema}.parts p
    WHERE p.family = f AND p.tenant = t AND NOT EXISTS (SELECT 1 FROM live WHERE live.name = p.name)
$$;

CREATE FUNCTION {schema}.commit_row(
    t text, s text, n text, c text, parent text, run text, at bigint, f bigint, dig bytea, met bytea, ref bytea,
    shp bytea, names bytea[], their_refs bytea[], datas bytea[], base bigint, base_digest bytea, compare boolean,
    expected text, replacing boolean, OUT status text, OUT number bigint, OUT newest text
) LANGUAGE plpgsql AS $$
DECLARE
    known record;
    there record;
    made boolean := false;
BEGIN
    PERFORM {schema}.lock_family(t, f, replacing);
    SELECT * INTO known FROM {schema}.sessions WHERE tenant = t AND session = s FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO {schema}.sessions VALUES (t, s, f, 0, 0, 0, false) ON CONFLICT DO NOTHING;
        made := FOUND;
        SELECT * INTO known FROM {schema}.sessions WHERE tenant = t AND session = s FOR UPDATE;
    END IF;
    SELECT sequence, digest INTO there FROM {schema}.checkpoints
        WHERE tenant = t AND session = s AND namespace = n AND checkpoint_id = c;
    IF there.digest = dig THEN
        status := 'saved'; number := there.sequence; RETURN;
    END IF;
    IF compare THEN
        SELECT checkpoint_id INTO newest FROM {schema}.checkpoints
            WHERE tenant = t AND session = s AND namespace = n ORDER BY sequence DESC LIMIT 1;
    END IF;
    status := CASE
        WHEN known.deleted THEN 'deleted'
        WHEN there.sequence IS NOT NULL AND NOT replacing THEN 'taken'
        WHEN compare AND newest IS DISTINCT FROM expected THEN 'moved'
        WHEN known.family IS DISTINCT FROM f THEN 'stale'
        WHEN base IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM {schema}.checkpoints WHERE sequence = base AND digest = base_digest AND tenant = t
        ) THEN 'stale'
        ELSE 'saved' END;
    IF status <> 'saved' THEN
        IF made THEN
            DELETE FROM {schema}.sessions WHERE tenant = t AND session = s;
        END IF;
        RETURN;
    END IF;
    IF cardinality(names) > 0 THEN
        INSERT INTO {schema}.parts SELECT t, f, u.* FROM unnest(names, their_refs, datas) u (name, refs, data)
            ORDER BY u.name ON CONFLICT DO NOTHING;
    END IF;
    IF there.sequence IS NOT NULL THEN
        number := there.sequence;
        UPDATE {schema}.checkpoints SET parent_id = parent, run_id = run, saved_at = at, digest = dig, meta = met,
            refs = ref, shape = shp WHERE sequence = number;
        UPDATE {schema}.sessions SET saved_at = greatest(saved_at, at) WHERE tenant = t AND session = s;
        PERFORM {schema}.sweep(t, f);
    ELSE
        number := nextval('{name}.numbers');
        INSERT INTO {schema}.checkpoints VALUES (t, s, n, c, number, parent, run, at, f, dig, met, ref, shp);
        UPDATE {schema}.sessions
            SET latest = number, checkpoints = checkpoints + 1, saved_at = greatest(saved_at, at)
            WHERE tenant = t AND session = s;
    END IF;
END $$;

CREATE FUNCTION {schema}.delete_rows(t text, ss text[], ns text[], cs text[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    f bigint;
    families bigint[];
    removed bigint;
BEGIN
    SELECT array_agg(DISTINCT family ORDER BY family) INTO families FROM {schema}.sessions
        WHERE tenant = t AND session = ANY (ss);
    FOREACH f IN ARRAY coalesce(families, '{{}}') LOOP
        PERFORM {schema}.lock_family(t, f, true);
    END LOOP;
    PERFORM 1 FROM {schema}.sessions WHERE tenant = t AND session = ANY (ss) ORDER BY session FOR UPDATE;
    DELETE FROM {schema}.writes w USING unnest(ss, ns, cs) u (s, n, c)
        WHERE w.tenant = t AND w.session = u.s AND w.namespace = u.n AND w.checkpoint_id = u.c;
    WITH gone AS (
        DELETE FROM {schema}.checkpoints k USING unnest(ss, ns, cs) u (s, n, c)
            WHERE k.tenant = t AND k.session = u.s AND k.namespace = u.n AND k.checkpoint_id = u.c RETURNING k.session
    ), counted AS (
        UPDATE {schema}.sessions x SET checkpoints = x.checkpoints - g.count
            FROM (SELECT session, count(*) AS count FROM gone GROUP BY session) g
            WHERE x.tenant = t AND x.session = g.session RETURNING g.count
    )
    SELECT coalesce(sum(count), 0) INTO removed FROM counted;
    FOREACH f IN ARRAY coalesce(families, '{{}}') LOOP
        PERFORM {schema}.sweep(t, f);
    END LOOP;
    RETURN removed;
END $$;

CREATE FUNCTION {schema}.delete_session(t text, s text, tombstone boolean, latest_is bigint, saved_is bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    f bigint;
    removed bigint;
BEGIN
    LOOP
        SELECT family INTO f FROM {schema}.sessions WHERE tenant = t AND session = s;
        IF NOT FOUND THEN
            DELETE FROM {schema}.writes WHERE tenant = t AND session = s;
            RETURN 0;
        END IF;
        PERFORM {schema}.lock_family(t, f, true);
        PERFORM 1 FROM {schema}.sessions WHERE tenant = t AND session = s AND family = f FOR UPDATE;
        EXIT WHEN FOUND;
    END LOOP;
    PERFORM 1 FROM {schema}.sessions WHERE tenant = t AND session = s
        AND (latest_is IS NULL OR (latest = latest_is AND saved_at = saved_is AND NOT deleted));
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    DELETE FROM {schema}.writes WHERE tenant = t AND session = s;
    DELETE FROM {schema}.checkpoints WHERE tenant = t AND session = s;
    GET DIAGNOSTICS removed = ROW_COUNT;
    IF tombstone THEN
        UPDATE {schema}.sessions SET deleted = true, checkpoints = 0 WHERE tenant = t AND session = s;
    ELSE
        DELETE FROM {schema}.sessions WHERE tenant = t AND session = s;
    END IF;
    PERFORM {schema}.sweep(t, f);
    RETURN removed;
END $$;

CREATE FUNCTION {schema}.clear(t text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(t, 0));
    DELETE FROM {schema}.checkpoints WHERE tenant = t;
    DELETE FROM {schema}.sessions WHERE tenant = t;
    DELETE FROM {schema}.parts WHERE tenant = t;
    DELETE FROM {schema}.writes WHERE tenant = t;
END $$;

CREATE FUNCTION {schema}.add_writes(
    t text, s text, n text, c text, tasks text[], indexes bigint[], paths text[], channels text[], datas bytea[],
    replacing boolean
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    f bigint;
BEGIN
    SELECT family INTO f FROM {schema}.sessions WHERE tenant = t AND session = s;
    PERFORM {schema}.lock_family(t, coalesce(f, 0), false);
    PERFORM 1 FROM {schema}.sessions WHERE tenant = t AND session = s AND deleted;
    IF FOUND THEN
        RETURN false;
    END IF;
    IF replacing THEN
        INSERT INTO {schema}.writes SELECT t, s, n, c, u.* FROM unnest(tasks, indexes, paths, channels, datas) u
            ON CONFLICT (tenant, session, namespace, checkpoint_id, task_id, idx) DO UPDATE
            SET task_path = excluded.task_path, channel = excluded.channel, data = excluded.data;
    ELSE
        INSERT INTO {schema}.writes SELECT t, s, n, c, u.* FROM unnest(tasks, indexes, paths, channels, datas) u
            ON CONFLICT DO NOTHING;
    END IF;
    RETURN true;
END $$;
"""

LOCK_FAMILIES = """
SELECT {schema}.lock_family(%s, family, true) FROM (
    SELECT DISTINCT family FROM {schema}.sessions WHERE tenant = %s AND session = ANY (%s) ORDER BY family
) known
"""

WEIGHTS = """
SELECT s.session,
    (SELECT coalesce(sum(length(meta) + length(refs) + length(shape)), 0)::bigint FROM {schema}.checkpoints c
        WHERE c.tenant = s.tenant AND c.session = s.session)
    + (SELECT coalesce(sum(length(data)), 0)::bigint FROM {schema}.writes w
        WHERE w.tenant = s.tenant AND w.session = s.session),
    s.family,
    (SELECT coalesce(sum(length(refs) + length(data)), 0)::bigint FROM {schema}.parts p
        WHERE p.family = s.family AND p.tenant = s.tenant),
    (SELECT count(DISTINCT o.session) FROM {schema}.checkpoints o WHERE o.family = s.family AND o.tenant = s.tenant)
FROM unnest(%s::text[]) WITH ORDINALITY asked (name, at)
    JOIN {schema}.sessions s ON s.session = asked.name AND s.tenant = %s AND NOT s.deleted
ORDER BY at
"""

USAGE = """
SELECT (SELECT count(*) FROM {schema}.sessions WHERE tenant = %(t)s AND NOT deleted),
    (SELECT count(*) FROM {schema}.sessions WHERE tenant = %(t)s AND deleted),
    (SELECT count(*) FROM {schema}.checkpoints WHERE tenant = %(t)s),
    (SELECT count(*) FROM {schema}.parts WHERE tenant = %(t)s),
    (SELECT coalesce(sum(length(refs) + length(data)), 0)::bigint FROM {schema}.parts WHERE tenant = %(t)s),
    (SELECT coalesce(sum(length(meta) + length(refs) + length(shape)), 0)::bigint FROM {schema}.checkpoints
        WHERE tenant = %(t)s)
    + (SELECT coalesce(sum(length(data)), 0)::bigint FROM {schema}.writes WHERE tenant = %(t)s),
    (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {schema}.numbers)
"""

ADD_ROWS = """
SELECT done.status, done.number
FROM unnest(
    %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[],
    %s::bigint[], %b::bytea[]
) WITH ORDINALITY u (n, c, parent, run, saved_at, digest, meta, refs, shape, base, base_digest, at),
    (SELECT %s::text AS t, %s::text AS s, %s::bigint AS f) o,
    LATERAL {schema}.commit_row(
        o.t, o.s, u.n, u.c, u.parent, u.run, u.saved_at, o.f, u.digest, u.meta, u.refs, u.shape,
        '{{}}', '{{}}', '{{}}', u.base, u.base_digest, false, NULL, false
    ) done
ORDER BY at
"""

ADD_WRITES = """
INSERT INTO {schema}.writes SELECT %s, %s, u.* FROM unnest(
    %s::text[], %s::text[], %s::text[], %s::bigint[], %s::text[], %s::text[], %b::bytea[]
) u
ON CONFLICT (tenant, session, namespace, checkpoint_id, task_id, idx) DO UPDATE
SET task_path = excluded.task_path, channel = excluded.channel, data = excluded.data
"""
