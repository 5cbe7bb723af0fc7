"""A flow store as a `Location`: its sessions, and the states of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from holdfast.errors import Damaged, NotFound, Refused, Remedy
from holdfast.escaping import unescape, without_password
from holdfast.flow import CheckpointMetadata, Place, PrunedStates, SessionInfo, States, open_states
from holdfast.flow.model import moment
from holdfast.flow.segments import state_bytes
from holdfast.flow.store import CheckpointRow, SessionRow
from holdfast.location import (
    Capability,
    Changed,
    Column,
    Comparison,
    Description,
    Details,
    Field,
    InvalidOption,
    Item,
    Option,
    Page,
    PrunePlan,
    PruneResult,
    Table,
    UsageReport,
    Verification,
)
from holdfast.model import Progress, VerifyReport, documents
from holdfast.retention import Policy
from holdfast.serde import Keys, Registry, read_keys, to_json

KEYS_VARIABLE = "HOLDFAST_FLOW_KEYS"
_CONNECT_TIMEOUT_SECONDS = 10.0
_NAMED_MAX = 3
_LATEST = "latest"
_DIGITS_MAX = 9
_SESSIONS = (
    Column("session", "name"),
    Column("checkpoints", "count"),
    Column("last saved", "time"),
    Column("size", "bytes"),
    Column("tenant", "name"),
)
_CHECKPOINTS = (
    Column("checkpoint", "name"),
    Column("step"),
    Column("node", "name"),
    Column("when", "time"),
    Column("tags", "list"),
    Column("namespace", "name"),
)
_DELETED = (Column("checkpoint", "text"), Column("when", "time"))
_ALL = frozenset(Capability) - {Capability.PIN}  # the tags of a saved checkpoint do not change
_Made = TypeVar("_Made")


class TenantStates:
    """The states of every tenant of a store, each opened when it is asked for."""

    def __init__(self, url: str, keys: Keys | None, *, create: bool = False) -> None:
        self.url = url
        self._keys = keys
        self._create = create
        self._open: dict[str, States] = {}
        self._stack = ExitStack()

    def __getitem__(self, name: str) -> States:
        """The states of one tenant. Objects of all classes stay opaque: nothing need be imported to look at them."""
        if name not in self._open:
            timeout: dict[str, Any] = {"timeout": _CONNECT_TIMEOUT_SECONDS} if self.url.startswith("postgres") else {}
            states = open_states(
                self.url,
                tenant=name,
                registry=Registry(),
                on_unknown="keep",
                keys=self._keys,
                create=self._create,
                **timeout,
            )
            self._open[name] = self._stack.enter_context(states)
        return self._open[name]

    def names(self, only: str | None) -> list[str]:
        """The tenant that was asked for, or all there are; the one without a name is always there."""
        if only is not None:
            self.check(only)
            return [only]
        return self[""].store.tenants() or [""]

    def check(self, name: str) -> None:
        """NotFound, with those there are, if a tenant has nothing here: most often it is misspelt."""
        store = self[name].store
        if not name or store.sessions(limit=1) or store.tombstones():
            return
        known = ", ".join(repr(each) for each in store.tenants() if each) or "none but the one without a name"
        raise NotFound(f"there is no tenant {name!r}", hint=f"The tenants are: {known}.")

    def session(self, tenant: str, given: str) -> str:
        """The session that was named, exactly or as it is printed. NotFound, with the reason, if there is none."""
        store = self[tenant].store
        for name in dict.fromkeys((given, _unescaped(given))):
            known = store.session(name) if name else None
            if known is not None and not known.is_deleted:
                return name
            if known is not None:
                raise NotFound(f"session {name!r} was deleted", hint="It is gone; `reopen` lets its id be used again.")
        self.check(tenant)
        owners = [other for other in store.tenants() if other != tenant]
        having = [other for other in owners if self[other].store.session(given)]
        of_tenant = f" of tenant {tenant!r}" if tenant else ""
        remedy = Remedy("name_tenant", tenant=repr(having[0])) if having else Remedy("list_sessions")
        raise NotFound(f"there is no session {given!r}{of_tenant}", remedy=remedy)

    def close(self) -> None:
        self._stack.close()


@contextmanager
def opened(url: str, keys: Keys | None, *, create: bool = False) -> Iterator[TenantStates]:
    """Open a store; without `create`, NotFound where there is none yet, and none is made."""
    if url.partition(":")[0] == "memory":
        raise Refused("memory:// exists only in the program that opened it", hint="Name a file or a server.")
    tenants = TenantStates(url, keys, create=create)
    try:
        yield tenants
    finally:
        tenants.close()


_List = list  # within the class, `list` is its method


class StateFork(NamedTuple):
    """A session that began as a fork of a checkpoint of another."""

    session: str
    place: Place
    """The checkpoint that it was forked from."""
    checkpoints: int
    saved_at: datetime


class FlowLocation:
    """The sessions of a store or, with the option `session`, the checkpoints of one."""

    capabilities = _ALL
    options = (
        Option("session", "The session of the checkpoints.", _ALL, "ID"),
        Option("all", "Prune all sessions of a tenant.", frozenset([Capability.PRUNE])),
        Option("tenant", "Only this tenant.", _ALL, "NAME"),
        Option("namespace", "Only this namespace.", _ALL - {Capability.VERIFY, Capability.USAGE}, "NAME"),
        Option(
            "keys",
            f"The key file of the store. [default: ${KEYS_VARIABLE}]",
            _ALL - {Capability.USAGE},
            "FILE",
            KEYS_VARIABLE,
        ),
    )
    item_columns = _DELETED

    def __init__(self, address: str, options: Mapping[str, Any] | None = None) -> None:
        given = options or {}
        self.url = address
        self._session: str | None = given.get("session")
        self._tenant: str | None = given.get("tenant")
        self._namespace: str | None = given.get("namespace")
        self._keys: str | None = given.get("keys")
        self._is_all = bool(given.get("all"))

    def describe(self) -> Description:
        return Description("flow", "a flow store", without_password(self.url), self.capabilities)

    def close(self) -> None:
        """Nothing is open between two calls."""

    @contextmanager
    def _opened(self, *, encrypted: bool = True) -> Iterator[TenantStates]:
        """encrypted: whether what is read may be encrypted. Sizes and names of sessions are not."""
        keys = read_keys(self._keys) if encrypted and self._keys else None
        with opened(self.url, keys) as tenants:
            yield tenants

    # sessions, and checkpoints of one

    def list(self, limit: int | None, before: str | None = None) -> Page:
        if before is not None and not before.isdecimal():
            raise InvalidOption(f"invalid cursor {before!r}: pass the number that the last page ended with")
        cursor = None if before is None else int(before)
        with self._opened(encrypted=self._session is not None) as tenants:
            if self._session is not None:
                return self._checkpoints(tenants, self._session, limit, cursor)
            if self._namespace is not None:
                raise InvalidOption("a namespace needs a session: none is named", remedy=Remedy("name_session"))
            return self._sessions(tenants, limit, cursor)

    def _sessions(self, tenants: TenantStates, limit: int | None, before: int | None) -> Page:
        """The session saved into last comes first."""
        most = None if limit is None else limit + 1
        found = [
            (tenant, each)
            for tenant in tenants.names(self._tenant)
            for each in tenants[tenant].sessions(most, before=before)
        ]
        found.sort(key=lambda pair: -pair[1].latest)
        shown, cursor = _page(found, limit)
        sizes = {
            (tenant, weight.session_id): weight.own_bytes + weight.shared_bytes
            for tenant in dict.fromkeys(tenant for tenant, _ in shown)
            for weight in tenants[tenant].sizes([each.session_id for own, each in shown if own == tenant])
        }
        items = [_session_item(tenant, each, sizes.get((tenant, each.session_id), 0)) for tenant, each in shown]
        nothing = "There are no older ones." if before is not None else "There are no sessions yet."
        return Page(_SESSIONS, items, cursor, [] if items else [nothing])

    def _checkpoints(self, tenants: TenantStates, given: str, limit: int | None, before: int | None) -> Page:
        states = tenants[self._tenant or ""]
        session = tenants.session(self._tenant or "", given)
        most = None if limit is None else limit + 1
        found = states.store.rows(session, self._namespace, before=before, limit=most, whole=True)
        shown = found[:limit]
        cursor = str(shown[-1].sequence) if len(found) > len(shown) else None
        nothing = "There are no older ones." if before is not None else "It has no checkpoints there."
        known = {row.place: row for row in found}
        items = [_row_item(states, row, _previous(states, known, found[at + 1 :], row)) for at, row in enumerate(shown)]
        return Page(_CHECKPOINTS, items, cursor, [] if shown else [nothing])

    def forks(self, limit: int) -> _List[StateFork]:
        """The sessions that began as a fork of a checkpoint of this one, newest first; looks at `limit` sessions.

        A store that has no fork of the session is not searched (P8).
        """
        with self._one_session() as (states, session):
            store = states.store
            own = next(iter(store.sizes([session])), None)
            if own is None or own.family_sessions < 2:
                return []
            family = [each for each in store.sessions(limit=limit) if each.family == own.family]
            others = [each for each in family if each.session != session and not each.is_deleted]
            return [found for each in others if (found := _fork(states, session, each)) is not None]

    # one checkpoint, or two

    @contextmanager
    def _one_session(self) -> Iterator[tuple[States, str]]:
        """The states, and the session that was named."""
        if self._session is None:
            raise InvalidOption("no session is named", remedy=Remedy("name_session"))
        with self._opened() as tenants:
            tenant = self._tenant or ""
            yield tenants[tenant], tenants.session(tenant, self._session)

    def get(self, ref: str | None) -> Details:
        with self._one_session() as (states, session):
            at = find(states, session, self._namespace, ref)
            found = states.load_encoded(session, at.checkpoint_id, namespace=at.namespace)
            if found is None:
                raise NotFound(f"checkpoint {at.checkpoint_id!r} is gone", hint="It was deleted just now.")
            state, writes = lossless(found.state), _writes(states, at)
            told = found.metadata
            document = _metadata(states, told) | {"state": state, "writes": writes}
            waiting = [f"{each['channel']} by {each['task_id']}" for each in writes]
            fields = [
                Field("checkpoint", told.checkpoint_id, "name"),
                Field("session", told.session_id, "name"),
                Field("tenant", states.store.tenant, "name"),
                Field("namespace", told.namespace, "name"),
                Field("when", told.timestamp, "time"),
                Field("node", str(told.node_name), "name"),
                Field("step", told.step),
                Field("parent", told.parent_id, "name"),
                Field("run", told.run_id, "name"),
                Field("tags", told.tags, "list"),
                Field("number", told.sequence),
                Field("extra", document["extra"], "value"),
                Field("state", len(found.state), "bytes"),
                Field("writes", list(zip(waiting, (each["value"] for each in writes), strict=True)), "values"),
            ]
            return Details(told.checkpoint_id, fields, document, state=state)

    def encoded_bytes(self, ref: str | None) -> int:
        """How many bytes `get` decodes: of the state, its metadata and its writes. Reads no part of the state.

        What is damaged counts as nothing: `get` says what is wrong with it.
        """
        with self._one_session() as (states, session):
            at = find(states, session, self._namespace, ref)
            writes = states.store.writes([at])[at]
            with suppress(Damaged):
                return _encoded_bytes(states, at) + sum(len(states.codec.open_write_bytes(at, each)) for each in writes)
            return 0

    def compared_bytes(self, a: str | None, b: str | None) -> int:
        """The same of `diff`."""
        with self._one_session() as (states, session), suppress(Damaged):
            return sum(_encoded_bytes(states, each) for each in self._ends(states, session, a, b))
        return 0

    def find(self, ref: str) -> Item:
        with self._one_session() as (states, session):
            return self._found(states, session, ref)

    def _found(self, states: States, session: str, ref: str) -> Item:
        at = find(states, session, self._namespace, ref)
        row = states.store.find(*at)
        if row is None:
            raise NotFound(f"checkpoint {at.checkpoint_id!r} is gone", hint="It was deleted just now.")
        return _deleted_item(states, states.codec.metadata(row))

    def diff(self, a: str | None, b: str | None) -> Comparison:
        """Without B, A and the newest; without both, the last two."""
        with self._one_session() as (states, session):
            before, after = self._ends(states, session, a, b)
            if before.namespace != after.namespace:
                spaces = f"{before.namespace!r} and {after.namespace!r}"
                raise Refused(f"the checkpoints are in two namespaces, {spaces}", remedy=Remedy("name_namespace"))
            found = states.diff(session, before.checkpoint_id, after.checkpoint_id, namespace=before.namespace)
            changes = [
                Changed(each.path, each.kind, *(_lossless_value(states, value) for value in (each.before, each.after)))
                for each in found.changes
            ]
            ends = {side: _metadata(states, getattr(found, side)) for side in ("before", "after")}
            title = " → ".join(f"{each.checkpoint_id} (step {each.step})" for each in (found.before, found.after))
            notes = [] if found else [("No differences.", ())]
            document = {**ends, "changes": [_change(each) for each in changes]}
            return Comparison(document, changes=changes, notes=notes, title=title)

    def _ends(self, states: States, session: str, a: str | None, b: str | None) -> tuple[Place, Place]:
        after = find(states, session, self._namespace, b)
        return (find(states, session, self._namespace, a) if a else _before(states, after)), after

    def fork(self, ref: str | None, into: str) -> CheckpointMetadata:
        """Create a session that begins with a checkpoint. Conflict if there is one of that name."""
        with self._one_session() as (states, session):
            at = find(states, session, self._namespace, ref)
            return states.fork(session, at.checkpoint_id, into=into, namespace=at.namespace)

    # all of it

    def _named_tenants(self, tenants: TenantStates) -> _List[str]:
        """Those that are asked about; a session is of one tenant."""
        return tenants.names(self._tenant or "" if self._session is not None else self._tenant)

    def verify(self, progress: Progress | None = None) -> Verification:
        """Read every state and every write, of all tenants or one."""
        reports: dict[str, VerifyReport] = {}
        with self._opened() as tenants:
            for tenant in self._named_tenants(tenants):
                session = None if self._session is None else tenants.session(tenant, self._session)
                reports[tenant] = tenants[tenant].verify(session, progress=progress)
        is_ok = all(report.ok for report in reports.values())
        problems = [
            (f"tenant {tenant}: " if tenant else "") + problem.detail
            for tenant, report in reports.items()
            for problem in report.problems
        ]
        each = [{"tenant": tenant, **documents.report(report)} for tenant, report in reports.items()]
        return Verification(
            is_ok,
            [(sum(report.checkpoints for report in reports.values()), "checkpoint")],
            sum(report.bytes_read for report in reports.values()),
            problems,
            {"ok": is_ok, "tenants": each},
            [] if is_ok else ["Checkpoints that are not listed are intact."],
        )

    def usage(self, limit: int | None) -> UsageReport:
        """What is stored, and which sessions take most. Sizes are not secret, so no key is needed."""
        with self._opened(encrypted=False) as tenants:
            usages = {name: tenants[name].usage() for name in self._named_tenants(tenants)}
            rows = [each for name in usages for each in self._sizes(tenants, name)]
        rows.sort(key=lambda each: (-each["own_bytes"] - each["shared_bytes"], each["tenant"], each.pop("latest")))
        shown = rows[:limit]
        fields: _List[Field] = []
        by_tenant = Table(
            (Column("tenant", "name"), Column("sessions", "count"), Column("deleted", "count"),
             Column("checkpoints", "count"), Column("size", "bytes")),
            [
                (name or '""', each.sessions, each.tombstones, each.checkpoints, each.total_bytes)
                for name, each in usages.items()
            ],
        )  # fmt: skip
        total = sum(each.total_bytes for each in usages.values())
        fields = [
            Field("states", total, "bytes"),
            Field("sessions", sum(each.sessions for each in usages.values()), "count"),
            Field("deleted sessions", sum(each.tombstones for each in usages.values()) or None, "count"),
            Field("checkpoints", sum(each.checkpoints for each in usages.values()), "count"),
            Field("parts", sum(each.parts for each in usages.values()), "count"),
        ]
        by_session = Table(
            (Column("session", "name"), Column("unique", "bytes"), Column("with forks", "bytes"),
             Column("checkpoints", "count"), Column("tenant", "name")),
            [
                (one["session_id"], one["own_bytes"], one["shared_bytes"] or None, one["checkpoints"], one["tenant"])
                for one in shown
            ],
        )  # fmt: skip
        more = len(rows) - len(shown)
        document = {
            "total_bytes": total,
            "tenants": [
                {"tenant": name, **asdict(each), "total_bytes": each.total_bytes} for name, each in usages.items()
            ],
        }
        notes = [f"There are {more:,} more sessions."] if more else []
        tables = [by_session] if list(usages) == [""] else [by_tenant, by_session]
        return UsageReport(shown, more, fields, tables, document, notes, is_cut=bool(more))

    def _sizes(self, tenants: TenantStates, tenant: str) -> _List[dict[str, Any]]:
        states = tenants[tenant]
        only = None if self._session is None else tenants.session(tenant, self._session)
        sessions = {each.session_id: each for each in states.sessions(None) if only in (None, each.session_id)}
        return [
            {
                "session_id": each.session_id,
                "tenant": tenant,
                "checkpoints": sessions[each.session_id].checkpoints,
                "own_bytes": each.own_bytes,
                "shared_bytes": each.shared_bytes,
                "latest": sessions[each.session_id].latest,
            }
            for each in states.sizes(list(sessions))
        ]

    # deleting

    def default_policy(self) -> Policy | None:
        return None

    @contextmanager
    def _pruned_states(self) -> Iterator[tuple[TenantStates, States, str | None]]:
        if self._is_all == (self._session is not None):
            raise InvalidOption("prune needs either the option session or the option all")
        with self._opened() as tenants:
            tenant = self._tenant or ""
            tenants.check(tenant)
            session = None if self._session is None else tenants.session(tenant, self._session)
            yield tenants, tenants[tenant], session

    def plan_prune(self, policy: Policy, now: datetime) -> PrunePlan:
        """Of one session, or of all of one tenant. The newest of each namespace and what is tagged `pinned` stay."""
        del now  # the states have their own clock
        with self._pruned_states() as (tenants, states, session):
            plan = states.prune(policy, session, namespace=self._namespace, dry_run=True)
            notes = []
            if (
                self._tenant is None
                and self._session is None
                and (others := [each for each in tenants.names(None) if each])
            ):
                notes = [f"Only the tenant without a name is pruned. Others, one by one: {', '.join(others)}"]
            return PrunePlan(
                [_deleted_item(states, each) for each in plan.removed],
                _DELETED,
                {str(sequence): why for sequence, why in plan.kept.items()},
                None,
                _pruned(plan),
                (policy, plan),
                notes,
            )

    def prune(self, plan: PrunePlan) -> PruneResult:
        policy, shown = plan.own
        with self._pruned_states() as (_, states, session):
            done = states.prune(policy, session, namespace=self._namespace, plan=shown)
            removed = [_deleted_item(states, each) for each in done.removed]
            return PruneResult(removed, done.bytes_freed, _pruned(done))

    def delete(self, ref: str) -> Item:
        """Delete one checkpoint. Refused if a later one needs it."""
        with self._one_session() as (states, session):
            item = self._found(states, session, ref)
            states.delete(session, item.document["checkpoint_id"], namespace=item.document["namespace"])
            return item


# which checkpoint of a session a word means


def find(states: States, session: str, namespace: str | None, word: str | None) -> Place:
    """An id, a unique beginning of one, latest, or latest~2. What is an id means that, whatever it looks like.

    Without a namespace: the one without a name first, then any.
    """
    word = _LATEST if word is None else word
    exact = states.store.find(session, namespace or "", word) if word else None
    if exact is not None:
        return exact.place
    counted = _counted(states, session, namespace, word)
    if counted is not None:
        return counted
    rows = states.store.rows(session, namespace)
    for name in (word, _unescaped(word)):
        found = [row.place for row in rows if row.place.checkpoint_id == name]
        if found:
            return _only(found, word)
    begun = [row.place for row in rows if word and row.place.checkpoint_id.startswith(word)]
    if begun:
        return _only(begun, word)
    within = f" in namespace {namespace!r}" if namespace is not None else ""
    newest = ", ".join(repr(row.place.checkpoint_id) for row in rows[:_NAMED_MAX])
    hint = f"Its newest are {newest}." if rows else "It has none at all."
    raise NotFound(f"session {session!r} has no checkpoint {word!r}{within}", hint=hint)


def _counted(states: States, session: str, namespace: str | None, word: str) -> Place | None:
    """The newest, or the Nth before it, of the namespace without a name if it has any. Reads no more rows than that."""
    back = word.removeprefix(f"{_LATEST}~")
    if word != _LATEST and (back == word or not back.isdecimal() or len(back) > _DIGITS_MAX):
        return None
    at = 0 if word == _LATEST else int(back)
    rows = states.store.rows(session, namespace or "", limit=at + 1)
    if not rows and namespace is None:
        rows = states.store.rows(session, None, limit=at + 1)
    return rows[at].place if at < len(rows) else None


def _only(found: Sequence[Place], word: str) -> Place:
    if len(found) == 1:
        return found[0]
    if len({place.checkpoint_id for place in found}) == 1:
        spaces = ", ".join(repr(place.namespace) for place in found[:_NAMED_MAX])
        raise Refused(f"several namespaces have {word!r}: {spaces}", remedy=Remedy("name_namespace"))
    names = ", ".join(repr(place.checkpoint_id) for place in found[:_NAMED_MAX])
    raise Refused(f"{len(found):,} checkpoints begin with {word!r}: {names} …", hint="Write a longer prefix.")


def _before(states: States, newest: Place) -> Place:
    """The one that was saved before the newest of its namespace."""
    rows = states.store.rows(newest.session, newest.namespace, limit=2)
    if len(rows) < 2:
        raise NotFound(f"session {newest.session!r} has one checkpoint, and none before it", hint="Name two: A B.")
    return rows[1].place


def _unescaped(word: str) -> str:
    try:
        return unescape(word)
    except Refused:
        return word


# as JSON, without loss


def lossless(encoded: bytes) -> Any:
    """Encoded bytes as JSON's own types, from which `holdfast.serde.from_json` makes the same bytes."""
    return _shallow(lambda: json.loads(to_json(encoded)))


def _shallow(made: Callable[[], _Made]) -> _Made:
    try:
        return made()
    except RecursionError:
        raise Refused("the state is nested too deeply to show", hint="Load it in a program.") from None


def _lossless_value(states: States, value: Any) -> Any:
    return lossless(states.codec.serde.encode(value))


def _metadata(states: States, told: CheckpointMetadata) -> dict[str, Any]:
    when = told.timestamp
    return {
        "checkpoint_id": told.checkpoint_id,
        "session_id": told.session_id,
        "tenant": states.store.tenant,
        "namespace": told.namespace,
        "sequence": told.sequence,
        "parent_id": told.parent_id,
        "run_id": told.run_id,
        "step": told.step,
        "node_name": told.node_name,
        "timestamp": when.isoformat() if isinstance(when, datetime) else str(when),
        "tags": list(told.tags),
        "extra": _lossless_value(states, dict(told.extra)),
    }


def _writes(states: States, place: Place) -> list[dict[str, Any]]:
    return [
        {
            "task_id": row.task_id,
            "index": row.idx,
            "task_path": row.task_path,
            "channel": row.channel,
            "value": lossless(states.codec.open_write_bytes(place, row)),
        }
        for row in states.store.writes([place])[place]
    ]


def _change(each: Changed) -> dict[str, Any]:
    change: dict[str, Any] = {"path": each.path, "kind": each.kind}
    if each.kind != "added":
        change["before"] = each.before
    if each.kind != "removed":
        change["after"] = each.after
    return change


def _pruned(pruned: PrunedStates) -> dict[str, Any]:
    return {
        "kept": {str(sequence): why for sequence, why in pruned.kept.items()},
        "bytes_freed": pruned.bytes_freed,
        "is_done": pruned.is_done,
    }


# items of lists


def _page(found: list[tuple[str, SessionInfo]], limit: int | None) -> tuple[list[tuple[str, SessionInfo]], str | None]:
    """A page, and its cursor. Tenants of one Redis count for themselves: equal numbers stay together."""
    if limit is None or len(found) <= limit:
        return found, None
    last = found[limit - 1][1].latest
    shown = [pair for pair in found if pair[1].latest >= last]
    return shown, str(last) if len(shown) < len(found) else None


def _session_item(tenant: str, session: SessionInfo, size: int) -> Item:
    document = {
        "session_id": session.session_id,
        "tenant": tenant,
        "checkpoints": session.checkpoints,
        "latest": session.latest,
        "saved_at": session.saved_at.isoformat(),
        "bytes": size,
    }
    cells = (session.session_id, session.checkpoints, session.saved_at, size, tenant)
    return Item(session.session_id, cells, document)


def _previous(
    states: States, known: Mapping[Place, CheckpointRow], older: Sequence[CheckpointRow], row: CheckpointRow
) -> CheckpointRow | None:
    """The row that a row came from: its parent, or, if it names none, the one before it in its namespace."""
    place = row.place
    if row.parent_id is None:
        return next((each for each in older if each.place.namespace == place.namespace), None)
    parent = place._replace(checkpoint_id=row.parent_id)
    return known.get(parent) or states.store.find(*parent)


def _seconds(states: States, before: CheckpointRow | None, told: CheckpointMetadata) -> float | None:
    """The time between two steps, by their timestamps; None if these do not tell."""
    if before is None:
        return None
    try:
        seconds = (told.timestamp - states.codec.metadata(before).timestamp).total_seconds()
    except (Damaged, TypeError, AttributeError):  # a time without a zone, or of another type
        return None
    return seconds if seconds >= 0 else None


def _size(states: States, row: CheckpointRow) -> int | None:
    """The size of a state as it was encoded; None if that cannot be read."""
    try:
        return state_bytes(states.codec.open_row(row)[1])
    except Damaged:
        return None


def _encoded_bytes(states: States, place: Place) -> int:
    """The size of a state and its metadata as they are encoded; Damaged if that cannot be read."""
    if (row := states.store.find(*place)) is None:
        return 0  # deleted just now
    meta, segments = states.codec.open_row(row)
    return len(meta) + state_bytes(segments)


def _fork(states: States, source: str, session: SessionRow) -> StateFork | None:
    """The fork that a session began as; None if its oldest checkpoint says nothing of the source."""
    low, high = 0, session.latest
    while low < high:  # the least number of its rows: rows are listed from the greatest
        middle = (low + high) // 2
        if states.store.rows(session.session, None, before=middle + 1, limit=1):
            high = middle
        else:
            low = middle + 1
    oldest = next(iter(states.store.rows(session.session, None, before=low + 1, limit=1)), None)
    if oldest is None:
        return None
    try:
        origin = states.codec.metadata(oldest).extra.get("forked_from")
    except Damaged:
        return None
    if not isinstance(origin, list | tuple) or len(origin) != 2 or origin[0] != source:
        return None
    place = Place(source, oldest.place.namespace, str(origin[1]))
    return StateFork(session.session, place, session.checkpoints, moment(session.saved_at))


def _row_item(states: States, row: CheckpointRow, before: CheckpointRow | None) -> Item:
    """A checkpoint; one that cannot be read does not hide the others."""
    place = row.place
    try:
        told = states.codec.metadata(row)
    except Damaged as error:
        document = {
            "checkpoint_id": place.checkpoint_id,
            "session_id": place.session,
            "tenant": states.store.tenant,
            "namespace": place.namespace,
            "sequence": row.sequence,
            "error": error.message,
        }
        return Item(place.checkpoint_id, (place.checkpoint_id, None, "damaged", None, (), place.namespace), document)
    cells = (told.checkpoint_id, told.step, str(told.node_name), told.timestamp, told.tags, told.namespace)
    more = {"bytes": _size(states, row), "seconds": _seconds(states, before, told)}
    return Item(told.checkpoint_id, cells, _metadata(states, told) | more)


def _deleted_item(states: States, told: CheckpointMetadata) -> Item:
    named = " / ".join(filter(None, (told.session_id, told.namespace, told.checkpoint_id)))
    return Item(told.checkpoint_id, (named, told.timestamp), _metadata(states, told))
