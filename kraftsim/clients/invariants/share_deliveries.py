"""What share consumers learn about deliveries: a record that is done with is not delivered again,
and deliveries are counted.

An acknowledgement is answered when its effect is stored; a delivery counts as later if its request
was sent after that answer came. What was delivered before may still be on its way.
Source: KIP-932; kafka.server.share.SharePartition.acknowledge.
"""

from typing import Final, NamedTuple

from kraftsim.clients.events_share import (
    ShareAcknowledgementAnswered,
    ShareFetchSent,
    ShareRecordsReceived,
)
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation

DONE: Final = "finished-records-not-delivered"
COUNTED: Final = "released-deliveries-counted"
ACCEPT, RELEASE, REJECT = 1, 2, 3
Partition = tuple[str, str, int]
"""Group, topic, partition."""


class _Answer(NamedTuple):
    """An acknowledgement that took effect, and its place in the history."""

    place: int
    event_id: str
    of: ShareAcknowledgementAnswered


class _Deliveries:
    """Compares each delivery with the acknowledgements that were answered before its request was
    sent.
    """

    def __init__(self, name: str, kinds: tuple[int, ...], *, counts: bool) -> None:
        self._findings = Findings(name)
        self._kinds = kinds
        self._counts = counts
        """Whether only a delivery whose count did not grow is wrong."""
        self._place = 0
        self._sent: dict[tuple[str, int], int] = {}
        """By member and request: the place of the event."""
        self._answers: dict[Partition, list[_Answer]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a request, a delivery or an answer."""
        self._place += 1
        match event:
            case ShareFetchSent(member_id=member_id, request=request):
                self._sent[member_id, request] = self._place
            case ShareRecordsReceived():
                self._findings.examined += 1
                return self._receive(envelope, event)
            case ShareAcknowledgementAnswered(is_answered=True, error_code=0):
                if event.acknowledgement in self._kinds:
                    where = (event.group_id, event.topic, event.partition)
                    self._answers.setdefault(where, []).append(
                        _Answer(self._place, envelope.event_id, event)
                    )
            case _:
                pass
        return None

    def _receive(self, envelope: Envelope, received: ShareRecordsReceived) -> Violation | None:
        where = (received.group_id, received.topic, received.partition)
        sent = self._sent.get((received.member_id, received.request), 0)
        for answer in self._answers.get(where, ()):
            if answer.place > sent:
                break
            if (
                answer.of.first_offset <= received.last_offset
                and answer.of.last_offset >= received.first_offset
                and not (self._counts and received.delivery_count > answer.of.delivery_count)
            ):
                return self._findings.violation(
                    f"{'/'.join(map(str, where))}/{received.member_id}/{received.request}/"
                    f"{received.first_offset}",
                    f"{received.group_id}: {received.topic}-{received.partition} offsets "
                    f"{received.first_offset} to {received.last_offset} were delivered with count "
                    f"{received.delivery_count} after acknowledgement "
                    f"{answer.of.acknowledgement} of count {answer.of.delivery_count}",
                    answer.event_id,
                    envelope.event_id,
                )
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


class FinishedDeliveries(_Deliveries):
    """Accepted and rejected records are not delivered any more."""

    def __init__(self) -> None:
        super().__init__(DONE, (ACCEPT, REJECT), counts=False)


class CountedDeliveries(_Deliveries):
    """A released record is delivered with a higher count."""

    def __init__(self) -> None:
        super().__init__(COUNTED, (RELEASE,), counts=True)


WATCHES: Final = (ShareFetchSent, ShareRecordsReceived, ShareAcknowledgementAnswered)
EXAMINED: Final = "SELECT run, count(*) FROM share_records_received GROUP BY run"


def _violations(condition: str) -> str:
    return f"""
        WITH found AS (
            SELECT r.run, r.group_id, r.topic, r.partition, r.member_id, r.request,
                r.first_offset, r.last_offset, r.delivery_count, r.position,
                a.acknowledgement, a.delivery_count AS answered_count,
                a.position AS answered_position,
                row_number() OVER (PARTITION BY r.run, r.position ORDER BY a.position) AS place
            FROM share_records_received AS r
            JOIN share_fetch_sent AS s ON s.run = r.run AND s.member_id = r.member_id
                AND s.request = r.request
            JOIN share_acknowledgement_answered AS a ON a.run = r.run
                AND a.group_id = r.group_id AND a.topic = r.topic AND a.partition = r.partition
                AND a.first_offset <= r.last_offset AND a.last_offset >= r.first_offset
                AND a.is_answered AND a.error_code = 0 AND a.position < s.position
            WHERE {condition}
        )
        SELECT
            run,
            concat(group_id, '/', topic, '/', partition, '/', member_id, '/', request, '/',
                first_offset) AS key,
            concat(group_id, ': ', topic, '-', partition, ' offsets ', first_offset, ' to ',
                last_offset, ' were delivered with count ', delivery_count,
                ' after acknowledgement ', acknowledgement, ' of count ', answered_count)
                AS message,
            answered_position AS first_witness,
            position AS second_witness
        FROM found WHERE place = 1
    """


INVARIANTS = (
    Invariant(
        name=DONE,
        decides_without_nodes=True,
        rule="A record that a share consumer has accepted or rejected, with an answer, is not "
        "delivered for a later request.",
        source="KIP-932",
        watches=WATCHES,
        check=FinishedDeliveries,
        examined=EXAMINED,
        violations=_violations(f"a.acknowledgement IN ({ACCEPT}, {REJECT})"),
    ),
    Invariant(
        name=COUNTED,
        decides_without_nodes=True,
        rule="A record that a share consumer has released, with an answer, is delivered for later "
        "requests with a higher count only.",
        source="KIP-932",
        watches=WATCHES,
        check=CountedDeliveries,
        examined=EXAMINED,
        violations=_violations(
            f"a.acknowledgement = {RELEASE} AND r.delivery_count <= a.delivery_count"
        ),
    ),
)
