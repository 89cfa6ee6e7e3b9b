"""The configuration of a topic that is committed takes effect at every leader of its partitions
with the offset that the leader has applied, and stays in effect until it is changed again.

Also after an election, and after a restart from a snapshot. Only configurations are watched of
which a leader tells the value that it uses. No event says which of two topics of one name it is
about: nothing of a topic is watched once one of its name has been deleted.
Source: KIP-226, KIP-339; kafka.server.metadata.DynamicConfigPublisher,
kafka.server.TopicConfigHandler, Partition.effectiveMinIsr.
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
    ConfigChanged,
    ControllerElected,
    MetadataApplied,
    MetadataCommitted,
    TopicConfigInEffect,
    TopicDeleted,
)
from kraftsim.partitions.events import LeaderElected, LeadershipLost

NAME: Final = "topic-configs-take-effect"
OF_TOPIC: Final = 2
"""ConfigResource.Type.TOPIC."""
WATCHED: Final = (
    "max.message.bytes",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
)

Partition: TypeAlias = tuple[str, int]


class TopicConfigsTakeEffect:
    """Compares what each leader uses with the latest change that its broker has applied."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._changes: MetadataChanges[tuple[str, str]] = MetadataChanges()
        self._used: dict[Process, dict[Partition, dict[str, str | None]]] = {}
        """What each leader uses, by partition and name; of the partitions that it leads."""
        self._deleted: set[str] = set()  # for membership only

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a change, its commit, a leader's election, or what a broker has applied."""
        process = (envelope.node, envelope.incarnation)
        match event:
            case MetadataApplied():
                return self._applied(process, event, envelope.event_id)
            case ConfigChanged(resource_type=resource_type, name=name):
                key = (event.resource_name, name)
                is_known = resource_type == OF_TOPIC and key[0] not in self._deleted
                if is_known and name in WATCHED:
                    value = None if event.is_removed else event.value
                    self._changes.put(key, value, envelope.event_id, process)
            case MetadataCommitted(high_watermark=high_watermark):
                self._changes.on_committed(process, high_watermark)
            case ControllerElected():
                self._changes.on_elected()
            case TopicDeleted(topic=topic):
                self._deleted.add(topic)
                self._changes.forget(lambda key: key[0] == topic)
            case LeaderElected():
                self._used.setdefault(process, {})[event.topic, event.partition] = {}
            case LeadershipLost():
                self._used.get(process, {}).pop((event.topic, event.partition), None)
            case TopicConfigInEffect():
                return self._on_used(process, event, envelope.event_id)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _applied(self, process: Process, event: MetadataApplied, event_id: str) -> Violation | None:
        found = None
        for (topic, name), change in self._changes.on_applied(process, event, event_id):
            for partition in self._used.get(process, {}):
                if partition[0] == topic:
                    self._findings.examined += 1
                    found = self._compare(process, partition, name, change, event_id) or found
        return found

    def _on_used(
        self, process: Process, event: TopicConfigInEffect, event_id: str
    ) -> Violation | None:
        partition = (event.topic, event.partition)
        used = self._used.get(process, {}).get(partition)
        if used is None:
            return None
        used[event.name] = event.value
        change = self._changes.applied(process, (event.topic, event.name))
        if change is None:
            return None
        return self._compare(process, partition, event.name, change, event_id)

    def _compare(
        self,
        process: Process,
        partition: Partition,
        name: str,
        change: MetadataChange,
        event_id: str,
    ) -> Violation | None:
        value = self._used[process][partition].get(name)
        if value == change.value:
            return None
        subject = f"{partition[0]}-{partition[1]}"
        return self._findings.violation(
            f"{event_id}/{subject}/{name}",
            f"{process[0]} leads {subject} with {name} {value or 'of its broker'}, and has applied "
            f"{change.value or 'its removal'}",
            change.event_id,
            event_id,
        )


_NAMES: Final = ", ".join(f"'{each}'" for each in WATCHED)
_CHANGE: Final = f"""
    SELECT c.run, c.node, c.incarnation, c.resource_name AS topic, c.name AS config, c.position,
        CASE WHEN c.is_removed THEN NULL ELSE c.value END AS value,
        CASE WHEN d.deleted_at IS NULL OR d.deleted_at > c.following_at THEN c.following_at
            ELSE d.deleted_at END AS next_at
    FROM (
        SELECT *, lead(position) OVER (
            PARTITION BY run, resource_name, name ORDER BY position) AS following_at
        FROM config_changed WHERE resource_type = {OF_TOPIC} AND name IN ({_NAMES})
    ) AS c LEFT JOIN (
        SELECT run, topic, min(position) AS deleted_at FROM topic_deleted GROUP BY run, topic
    ) AS d ON d.run = c.run AND d.topic = c.resource_name
    WHERE d.deleted_at IS NULL OR d.deleted_at > c.position
"""
_LOOKED: Final = f"""{applied_changes_sql(_CHANGE)}, role AS (
        SELECT run, node, incarnation, topic, partition, position, 1 AS leads FROM leader_elected
        UNION ALL
        SELECT run, node, incarnation, topic, partition, position, 0 AS leads FROM leadership_lost
    ), moment AS (
        SELECT a.run, a.changed_at, a.node, a.incarnation, a.position, r.topic, r.partition,
            k.config, 1 AS is_application, max(r.position) AS role_at
        FROM applied AS a JOIN known AS k ON k.run = a.run AND k.position = a.changed_at
        JOIN role AS r ON r.run = a.run AND r.node = a.node AND r.incarnation = a.incarnation
            AND r.topic = k.topic AND r.position < a.position
        GROUP BY a.run, a.changed_at, a.node, a.incarnation, a.position, r.topic, r.partition,
            k.config
        UNION ALL
        SELECT a.run, a.changed_at, a.node, a.incarnation, q.position, q.topic, q.partition,
            k.config, 0 AS is_application, max(r.position) AS role_at
        FROM applied AS a JOIN known AS k ON k.run = a.run AND k.position = a.changed_at
        JOIN topic_config_in_effect AS q ON q.run = a.run AND q.node = a.node
            AND q.incarnation = a.incarnation AND q.topic = k.topic AND q.name = k.config
            AND q.position > a.position AND (k.until IS NULL OR q.position < k.until)
        JOIN role AS r ON r.run = a.run AND r.node = a.node AND r.incarnation = a.incarnation
            AND r.topic = q.topic AND r.partition = q.partition AND r.position < q.position
        GROUP BY a.run, a.changed_at, a.node, a.incarnation, q.position, q.topic, q.partition,
            k.config
    ), looked AS (
        SELECT m.* FROM moment AS m
        JOIN role AS r ON r.run = m.run AND r.position = m.role_at AND r.leads = 1
    )
"""

INVARIANT = Invariant(
    name=NAME,
    needs_examined=False,  # a new leader, where no change is applied afterwards
    rule="The leader of a partition that has applied the change of a configuration of its topic "
    "uses it, until it is changed again.",
    source="KIP-226, KIP-339",
    watches=(
        ConfigChanged,
        TopicConfigInEffect,
        TopicDeleted,
        LeaderElected,
        LeadershipLost,
        MetadataCommitted,
        MetadataApplied,
        ControllerElected,
    ),
    check=TopicConfigsTakeEffect,
    examined=f"WITH {_LOOKED} SELECT run, count(*) FROM looked WHERE is_application = 1 "
    "GROUP BY run",
    violations=f"""
        WITH {_LOOKED}, latest AS (
            SELECT l.run, l.changed_at, l.position, l.partition, max(q.position) AS used_at
            FROM looked AS l JOIN topic_config_in_effect AS q ON q.run = l.run AND q.node = l.node
                AND q.incarnation = l.incarnation AND q.topic = l.topic
                AND q.partition = l.partition AND q.name = l.config
                AND q.position > l.role_at AND q.position <= l.position
            GROUP BY l.run, l.changed_at, l.position, l.partition
        ), judged AS (
            SELECT l.*, k.value, q.value AS used
            FROM looked AS l JOIN known AS k ON k.run = l.run AND k.position = l.changed_at
            LEFT JOIN latest AS t ON t.run = l.run AND t.changed_at = l.changed_at
                AND t.position = l.position AND t.partition = l.partition
            LEFT JOIN topic_config_in_effect AS q ON q.run = t.run AND q.position = t.used_at
        ), named AS (
            SELECT run, position, n FROM metadata_applied
            UNION ALL SELECT run, position, n FROM topic_config_in_effect
        )
        SELECT
            j.run,
            concat(j.node, '.', j.incarnation, '.', e.n, '/', j.topic, '-', j.partition, '/',
                j.config) AS key,
            concat(j.node, ' leads ', j.topic, '-', j.partition, ' with ', j.config, ' ',
                coalesce(j.used, 'of its broker'), ', and has applied ',
                coalesce(j.value, 'its removal')) AS message,
            j.changed_at AS first_witness,
            j.position AS second_witness
        FROM judged AS j JOIN named AS e ON e.run = j.run AND e.position = j.position
        WHERE coalesce(j.value, '') <> coalesce(j.used, '')
    """,
)
