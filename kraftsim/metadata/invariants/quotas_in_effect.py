"""A quota that is committed takes effect at every broker with the offset that the broker has
applied, and stays in effect until it is changed again.

The offset of a change is below the high watermark that its controller reports next. A broker
publishes what it has applied at once (DynamicClientQuotaPublisher): the bound is no time at all. A
controller that is deposed before it knows that its record is committed emits no event for it, so
nothing is known of a quota from the election of the next one until it is changed again. Quotas of
IP addresses limit connections, and are not watched here.
Source: KIP-546; kafka.server.metadata.DynamicClientQuotaPublisher, KafkaQuotaManager.
"""

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import (
    ClientQuotaChanged,
    ControllerElected,
    MetadataApplied,
    MetadataCommitted,
    QuotaInEffect,
)

NAME: Final = "quotas-take-effect"
OF_ADDRESSES: Final = "ip="

Process: TypeAlias = tuple[str, int]
"""Node, incarnation."""
Quota: TypeAlias = tuple[str, str]
"""Entity, key."""


@dataclass(slots=True)
class _Change:
    """The latest change of a quota."""

    value: str | None
    event_id: str
    controller: Process
    committed: int | None = None
    """A high watermark above its offset."""
    applied_at: dict[Process, str] = field(default_factory=dict)


class QuotasTakeEffect:
    """Compares what each broker enforces with the latest change that it has applied."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._changes: dict[Quota, _Change] = {}
        self._enforced: dict[tuple[Process, Quota], str | None] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a change, its commit, or what a broker has applied."""
        process = (envelope.node, envelope.incarnation)
        match event:
            case MetadataApplied():
                if self._changes:
                    return self._applied(process, event, envelope.event_id)
            case ClientQuotaChanged(entity=entity):
                if not entity.startswith(OF_ADDRESSES):
                    value = None if event.is_removed else event.value
                    self._changes[entity, event.key] = _Change(value, envelope.event_id, process)
            case MetadataCommitted(high_watermark=high_watermark):
                for change in self._changes.values():
                    if change.committed is None and change.controller == process:
                        change.committed = high_watermark
            case ControllerElected():
                self._changes.clear()
            case QuotaInEffect():
                quota = (event.entity, event.key)
                self._enforced[process, quota] = event.value
                changed = self._changes.get(quota)
                if changed is not None and process in changed.applied_at:
                    return self._compare(process, quota, changed, envelope.event_id)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _applied(self, process: Process, event: MetadataApplied, event_id: str) -> Violation | None:
        found = None
        for quota, change in self._changes.items():
            if (
                change.committed is not None
                and change.committed <= event.next_offset
                and process not in change.applied_at
            ):
                change.applied_at[process] = event_id
                self._findings.examined += 1
                found = self._compare(process, quota, change, event_id) or found
        return found

    def _compare(
        self, process: Process, quota: Quota, change: _Change, event_id: str
    ) -> Violation | None:
        value = self._enforced.get((process, quota))
        if value == change.value:
            return None
        return self._findings.violation(
            f"{event_id}/{quota[0]}/{quota[1]}",
            f"{process[0]} enforces the quota {quota[1]} of {quota[0]} {value or 'not at all'}, "
            f"and has applied {change.value or 'its removal'}",
            change.event_id,
            event_id,
        )


_APPLIED = f"""
    change AS (
        SELECT run, node, incarnation, entity, key AS quota_key, position,
            CASE WHEN is_removed THEN NULL ELSE value END AS value,
            lead(position) OVER (PARTITION BY run, entity, key ORDER BY position) AS next_at
        FROM client_quota_changed WHERE entity NOT LIKE '{OF_ADDRESSES}%'
    ), elected AS (
        SELECT c.run, c.position, min(e.position) AS elected_at
        FROM change AS c JOIN controller_elected AS e ON e.run = c.run AND e.position > c.position
        GROUP BY c.run, c.position
    ), committed AS (
        SELECT c.run, c.position, min(m.position) AS committed_at
        FROM change AS c JOIN metadata_committed AS m ON m.run = c.run AND m.node = c.node
            AND m.incarnation = c.incarnation AND m.position > c.position
        GROUP BY c.run, c.position
    ), known AS (
        SELECT c.*, m.high_watermark, k.committed_at,
            CASE WHEN e.elected_at IS NULL OR e.elected_at > c.next_at THEN c.next_at
                ELSE e.elected_at END AS until
        FROM change AS c
        JOIN committed AS k ON k.run = c.run AND k.position = c.position
        JOIN metadata_committed AS m ON m.run = k.run AND m.position = k.committed_at
        LEFT JOIN elected AS e ON e.run = c.run AND e.position = c.position
    ), applied AS (
        SELECT k.run, k.position AS changed_at, a.node, a.incarnation,
            min(a.position) AS position
        FROM known AS k JOIN metadata_applied AS a ON a.run = k.run
            AND a.position > k.committed_at AND a.next_offset >= k.high_watermark
            AND (k.until IS NULL OR a.position < k.until)
        GROUP BY k.run, k.position, a.node, a.incarnation
    )
"""

INVARIANT = Invariant(
    name=NAME,
    rule="A broker that has applied the change of a client quota enforces it, until it is changed "
    "again.",
    source="KIP-546",
    watches=(
        ClientQuotaChanged,
        QuotaInEffect,
        MetadataCommitted,
        MetadataApplied,
        ControllerElected,
    ),
    check=QuotasTakeEffect,
    examined=f"WITH {_APPLIED} SELECT run, count(*) FROM applied GROUP BY run",
    violations=f"""
        WITH {_APPLIED}, looked AS (
            SELECT a.run, a.changed_at, a.node, a.incarnation, a.position FROM applied AS a
            UNION ALL
            SELECT a.run, a.changed_at, a.node, a.incarnation, q.position
            FROM applied AS a JOIN known AS k ON k.run = a.run AND k.position = a.changed_at
            JOIN quota_in_effect AS q ON q.run = a.run AND q.node = a.node
                AND q.incarnation = a.incarnation AND q.entity = k.entity AND q.key = k.quota_key
                AND q.position > a.position AND (k.until IS NULL OR q.position < k.until)
        ), latest AS (
            SELECT l.run, l.changed_at, l.position, max(q.position) AS enforced_at
            FROM looked AS l JOIN known AS k ON k.run = l.run AND k.position = l.changed_at
            JOIN quota_in_effect AS q ON q.run = l.run AND q.node = l.node
                AND q.incarnation = l.incarnation AND q.entity = k.entity AND q.key = k.quota_key
                AND q.position <= l.position
            GROUP BY l.run, l.changed_at, l.position
        ), judged AS (
            SELECT l.*, k.entity, k.quota_key, k.value, q.value AS enforced
            FROM looked AS l JOIN known AS k ON k.run = l.run AND k.position = l.changed_at
            LEFT JOIN latest AS t ON t.run = l.run AND t.changed_at = l.changed_at
                AND t.position = l.position
            LEFT JOIN quota_in_effect AS q ON q.run = t.run AND q.position = t.enforced_at
        ), named AS (
            SELECT run, position, node, incarnation, n FROM metadata_applied
            UNION ALL SELECT run, position, node, incarnation, n FROM quota_in_effect
        )
        SELECT
            j.run,
            concat(j.node, '.', j.incarnation, '.', e.n, '/', j.entity, '/', j.quota_key) AS key,
            concat(j.node, ' enforces the quota ', j.quota_key, ' of ', j.entity, ' ',
                coalesce(j.enforced, 'not at all'), ', and has applied ',
                coalesce(j.value, 'its removal')) AS message,
            j.changed_at AS first_witness,
            j.position AS second_witness
        FROM judged AS j JOIN named AS e ON e.run = j.run AND e.position = j.position
        WHERE coalesce(j.value, '') <> coalesce(j.enforced, '')
    """,
)
