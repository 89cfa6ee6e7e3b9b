"""Answers to administrators agree with the metadata log.

A change that is acknowledged is in the metadata log between its request and its answer, and a topic
is created once; TOPIC_ALREADY_EXISTS is true. A configuration that already has its value needs no
record: then it had the value at some time in between. Requests without an answer, or with a
retriable error, promise nothing. A controller that is deposed before it knows that its record is
committed emits no event for it, and its successor does not either: where an earlier request asked
for the same, or a controller was elected in between so that a broker may have forwarded the request
again, a topic may exist, and a configuration may have its value, without an event.
Source: KIP-339, KIP-631; linearizability of M. Herlihy, J. Wing, 1990.
"""

from typing import Final

from kraftsim.clients.events import MetadataChangeAnswered, MetadataChangeSent
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import ConfigChanged, ControllerElected, TopicCreated

NAME: Final = "admin-answers-in-metadata-log"
OF_TOPIC: Final = 2
"""ConfigResource.Type.TOPIC."""
ACKNOWLEDGED, EXISTS = 0, 36
"""NONE, TOPIC_ALREADY_EXISTS."""
Request = tuple[str, int, str]
"""Client, request, topic."""
Config = tuple[str, str]
"""Topic, name."""


class AnswersInLog:
    """Keeps the changes of each topic and configuration, and compares the answers with them."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._now = 0
        self._elected_at = 0
        self._created: dict[str, list[int]] = {}
        self._values: dict[Config, list[tuple[int, str | None]]] = {}
        self._first_at: dict[tuple[str, str, str | None], int] = {}
        """Topic, configuration, value -> when it was first requested."""
        self._sent: dict[Request, list[tuple[MetadataChangeSent, int, str]]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a record of the metadata log, a request or an answer."""
        self._now += 1
        match event:
            case ControllerElected():
                self._elected_at = self._now
            case TopicCreated(topic=topic):
                self._created.setdefault(topic, []).append(self._now)
            case ConfigChanged(resource_type=resource_type) if resource_type == OF_TOPIC:
                value = None if event.is_removed else event.value
                changes = self._values.setdefault((event.resource_name, event.name), [])
                changes.append((self._now, value))
            case MetadataChangeSent():
                sent = self._sent.setdefault((event.client_id, event.request, event.topic), [])
                sent.append((event, self._now, envelope.event_id))
                wanted = (event.topic, event.config_name, event.config_value)
                self._first_at.setdefault(wanted, self._now)
            case MetadataChangeAnswered():
                return self._check(event, envelope.event_id)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _check(self, answer: MetadataChangeAnswered, event_id: str) -> Violation | None:
        found = None
        asked = self._sent.get((answer.client_id, answer.request, answer.topic), ())
        for sent, at, sent_id in asked:
            if answer.error_code not in (ACKNOWLEDGED, EXISTS):
                continue
            self._findings.examined += 1
            if self._is_true(sent, at, answer.error_code):
                continue
            what = f"configuration {sent.config_name} of " if sent.config_name else ""
            found = (
                self._findings.violation(
                    f"{sent.client_id}/{sent.request}/{sent.topic}/{sent.config_name}",
                    f"{what}topic {sent.topic}: the answer {answer.error_code} to "
                    f"{sent.client_id} disagrees with the metadata log",
                    sent_id,
                    event_id,
                )
                or found
            )
        return found

    def _is_true(self, sent: MetadataChangeSent, at: int, error_code: int) -> bool:
        wanted = (sent.topic, sent.config_name, sent.config_value)
        is_repeated = self._first_at[wanted] < at or self._elected_at > at
        if is_repeated and (sent.config_name or error_code == EXISTS):
            return True
        if not sent.config_name:
            created = self._created.get(sent.topic, [])
            if error_code == EXISTS:
                return bool(created)
            return sum(each > at for each in created) == 1
        changes = self._values.get((sent.topic, sent.config_name), [])
        within = [value for when, value in changes if when > at]
        before = [value for when, value in changes if when < at]
        return sent.config_value in (before[-1] if before else None, *within)


_ANSWERS = f"""
    answered AS (
        SELECT s.run, s.client_id, s.request, s.topic, s.config_name, s.config_value,
            s.position AS sent_at, a.error_code, a.position
        FROM metadata_change_sent AS s
        JOIN metadata_change_answered AS a ON a.run = s.run AND a.client_id = s.client_id
            AND a.request = s.request AND a.topic = s.topic AND s.position < a.position
        WHERE a.error_code IN ({ACKNOWLEDGED}, {EXISTS})
    ), earliest AS (
        SELECT run, topic, config_name, coalesce(concat('=', config_value), '') AS wanted,
            min(position) AS first_at
        FROM metadata_change_sent
        GROUP BY run, topic, config_name, coalesce(concat('=', config_value), '')
    )
"""

INVARIANT = Invariant(
    name=NAME,
    rule="A change of a topic that an administrator got acknowledged is in the metadata log "
    "between its request and its answer, a creation once.",
    source="KIP-339, KIP-631",
    watches=(
        MetadataChangeSent,
        MetadataChangeAnswered,
        TopicCreated,
        ConfigChanged,
        ControllerElected,
    ),
    check=AnswersInLog,
    examined=f"WITH {_ANSWERS} SELECT run, count(*) FROM answered GROUP BY run",
    violations=f"""
        WITH {_ANSWERS}, creation AS (
            SELECT w.run, w.client_id, w.request, w.topic,
                sum(CASE WHEN c.position < w.position THEN 1 ELSE 0 END) AS known,
                sum(CASE WHEN c.position > w.sent_at AND c.position < w.position THEN 1 ELSE 0 END)
                    AS within
            FROM answered AS w
            JOIN topic_created AS c ON c.run = w.run AND c.topic = w.topic
            WHERE w.config_name = '' GROUP BY w.run, w.client_id, w.request, w.topic
        ), change AS (
            SELECT run, resource_name AS topic, name AS config_name,
                CASE WHEN is_removed THEN NULL ELSE value END AS value, position
            FROM config_changed WHERE resource_type = {OF_TOPIC}
        ), earlier AS (
            SELECT w.run, w.client_id, w.request, w.topic, w.config_name,
                max(c.position) AS position
            FROM answered AS w
            JOIN change AS c ON c.run = w.run AND c.topic = w.topic
                AND c.config_name = w.config_name AND c.position < w.sent_at
            GROUP BY w.run, w.client_id, w.request, w.topic, w.config_name
        ), effective AS (
            SELECT DISTINCT w.run, w.client_id, w.request, w.topic, w.config_name
            FROM answered AS w
            LEFT JOIN earlier AS e ON e.run = w.run AND e.client_id = w.client_id
                AND e.request = w.request AND e.topic = w.topic AND e.config_name = w.config_name
            JOIN change AS c ON c.run = w.run AND c.topic = w.topic
                AND c.config_name = w.config_name AND c.position < w.position
                AND (c.position > w.sent_at OR c.position = e.position)
            WHERE c.value = w.config_value OR (c.value IS NULL AND w.config_value IS NULL)
        ), forwarded_again AS (
            SELECT DISTINCT w.run, w.client_id, w.request, w.topic
            FROM answered AS w
            JOIN controller_elected AS l ON l.run = w.run AND l.position > w.sent_at
                AND l.position < w.position
        ), judged AS (
            SELECT w.*,
                CASE
                    WHEN (r.first_at < w.sent_at OR a.run IS NOT NULL)
                        AND (w.config_name <> '' OR w.error_code = {EXISTS}) THEN true
                    WHEN w.config_name = '' AND w.error_code = {EXISTS}
                        THEN coalesce(n.known, 0) > 0
                    WHEN w.config_name = '' THEN coalesce(n.within, 0) = 1
                    ELSE f.run IS NOT NULL OR (e.run IS NULL AND w.config_value IS NULL)
                END AS is_true
            FROM answered AS w
            JOIN earliest AS r ON r.run = w.run AND r.topic = w.topic
                AND r.config_name = w.config_name
                AND r.wanted = coalesce(concat('=', w.config_value), '')
            LEFT JOIN forwarded_again AS a ON a.run = w.run AND a.client_id = w.client_id
                AND a.request = w.request AND a.topic = w.topic
            LEFT JOIN creation AS n ON n.run = w.run AND n.client_id = w.client_id
                AND n.request = w.request AND n.topic = w.topic
            LEFT JOIN earlier AS e ON e.run = w.run AND e.client_id = w.client_id
                AND e.request = w.request AND e.topic = w.topic AND e.config_name = w.config_name
            LEFT JOIN effective AS f ON f.run = w.run AND f.client_id = w.client_id
                AND f.request = w.request AND f.topic = w.topic AND f.config_name = w.config_name
        )
        SELECT
            run,
            concat(client_id, '/', request, '/', topic, '/', config_name) AS key,
            concat(CASE WHEN config_name = '' THEN ''
                ELSE concat('configuration ', config_name, ' of ') END, 'topic ', topic,
                ': the answer ', error_code, ' to ', client_id,
                ' disagrees with the metadata log') AS message,
            sent_at AS first_witness,
            position AS second_witness
        FROM judged WHERE NOT is_true
    """,
)
