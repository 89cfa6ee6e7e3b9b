"""A quota that is committed takes effect at every broker with the offset that the broker has
applied, and stays in effect until it is changed again.

Quotas of IP addresses limit connections, and are not watched here.
Source: KIP-546; kafka.server.metadata.DynamicClientQuotaPublisher, KafkaQuotaManager.
"""

from typing import Final, TypeAlias

from kraftsim.events.event import Event
from kraftsim.invariants.changes_in_effect import (
    MetadataChange,
    MetadataChanges,
    Process,
    applied_changes_sql,
)
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

Quota: TypeAlias = tuple[str, str]
"""Entity, key."""


class QuotasTakeEffect:
    """Compares what each broker enforces with the latest change that it has applied."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._changes: MetadataChanges[Quota] = MetadataChanges()
        self._enforced: dict[tuple[Process, Quota], str | None] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a change, its commit, or what a broker has applied."""
        process = (envelope.node, envelope.incarnation)
        match event:
            case MetadataApplied():
                return self._applied(process, event, envelope.event_id)
            case ClientQuotaChanged(entity=entity):
                if not entity.startswith(OF_ADDRESSES):
                    value = None if event.is_removed else event.value
                    self._changes.put((entity, event.key), value, envelope.event_id, process)
            case MetadataCommitted(high_watermark=high_watermark):
                self._changes.on_committed(process, high_watermark)
            case ControllerElected():
                self._changes.on_elected()
            case QuotaInEffect():
                quota = (event.entity, event.key)
                self._enforced[process, quota] = event.value
                changed = self._changes.applied(process, quota)
                if changed is not None:
                    return self._compare(process, quota, changed, envelope.event_id)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _applied(self, process: Process, event: MetadataApplied, event_id: str) -> Violation | None:
        found = None
        for quota, change in self._changes.on_applied(process, event, event_id):
            self._findings.examined += 1
            found = self._compare(process, quota, change, event_id) or found
        return found

    def _compare(
        self, process: Process, quota: Quota, change: MetadataChange, event_id: str
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


_APPLIED = applied_changes_sql(f"""
    SELECT run, node, incarnation, entity, key AS quota_key, position,
        CASE WHEN is_removed THEN NULL ELSE value END AS value,
        lead(position) OVER (PARTITION BY run, entity, key ORDER BY position) AS next_at
    FROM client_quota_changed WHERE entity NOT LIKE '{OF_ADDRESSES}%'
""")

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
