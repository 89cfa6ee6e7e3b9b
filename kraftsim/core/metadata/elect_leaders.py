"""Leader elections: by request, and periodically by the controller.

Source: KIP-183, KIP-460, ReplicationControlManager.{electLeaders, maybeBalancePartitionLeaders,
maybeElectUncleanLeaders}.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Final

from kraftsim.core.decision import Decision, Refusal, Steps, ends_step, whole
from kraftsim.core.metadata.partition_change import UNCHANGED, Election
from kraftsim.core.metadata.partition_events import partition_events
from kraftsim.core.metadata.replication_view import (
    RECORDS_PER_OPERATION_MAX,
    TOO_LARGE,
    ReplicationView,
)
from kraftsim.core.metadata.topic_table import PartitionKey
from protocol.errors import ErrorCode
from protocol.messages.k43_elect_leaders import PREFERRED, UNCLEAN, ElectLeadersRequest
from protocol.metadata.m05_partition_change import PartitionChangeRecord
from protocol.schema import Message

ELECTIONS_PER_ROUND_MAX: Final = 1_000
"""ReplicationControlManager.MAX_ELECTIONS_PER_IMBALANCE: limits the elections of one batch, so that
other events are handled.
"""
ELECTIONS: Final = {PREFERRED: Election.PREFERRED, UNCLEAN: Election.UNCLEAN}
NOT_AVAILABLE: Final = {
    Election.PREFERRED: Refusal(
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
    ),
    Election.UNCLEAN: Refusal(
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        "Eligible topic partition leaders are not available.",
    ),
}
NOT_NEEDED: Final = Refusal(
    ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectedPartition:
    """The election result of one partition."""

    topic: str
    partition: int
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectedTopic:
    """The partitions of one topic, in the order of the request."""

    topic: str
    partitions: tuple[ElectedPartition, ...]


def decide_elect_leaders(
    view: ReplicationView, request: ElectLeadersRequest
) -> Decision[list[ElectedTopic]] | Refusal:
    """Elect the leaders of a request.

    If it is for all partitions, those without need of an election are not in the results.

    Fails as a whole with INVALID_REQUEST (unknown election type) or POLICY_VIOLATION (too large).
    """
    return whole(elect_leaders_steps(view, request))


def elect_leaders_steps(
    view: ReplicationView, request: ElectLeadersRequest
) -> Steps[Decision[list[ElectedTopic]] | Refusal]:
    """Like `decide_elect_leaders`, in steps."""
    election = ELECTIONS.get(request.election_type)
    if election is None:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    asks_for_all = request.topic_partitions is None
    if request.topic_partitions is None:
        asked: Iterable[tuple[str, Iterable[int]]] = (
            (topic.name, sorted(topic.partitions)) for topic in view.topics.topics()
        )
    else:
        asked = ((row.topic, row.partitions) for row in request.topic_partitions)
    results: list[ElectedTopic] = []
    records: list[Message] = []
    looked_at = count()
    for name, partitions in asked:
        rows = []
        for partition in partitions:
            if ends_step(next(looked_at)):
                yield
            outcome = _elected(view, name, partition, election)
            if isinstance(outcome, PartitionChangeRecord):
                records.append(outcome)
            refusal = outcome if isinstance(outcome, Refusal) else None
            if not asks_for_all or refusal != NOT_NEEDED:
                rows.append(ElectedPartition(topic=name, partition=partition, refusal=refusal))
        results.append(ElectedTopic(topic=name, partitions=tuple(rows)))
    if len(records) > RECORDS_PER_OPERATION_MAX:
        return Refusal(ErrorCode.POLICY_VIOLATION, TOO_LARGE)
    return Decision(records, results, partition_events(records, view.topics))


def decide_balance(view: ReplicationView) -> Decision[bool]:
    """Elect preferred leaders that are in sync and active; the result is whether there may be
    more.
    """
    records: list[Message] = []
    for key in view.topics.imbalanced():
        if len(records) == ELECTIONS_PER_ROUND_MAX:
            break
        record = _election_record(view, key, Election.PREFERRED)
        if record is not None:
            records.append(record)
    return Decision(
        records, len(records) == ELECTIONS_PER_ROUND_MAX, partition_events(records, view.topics)
    )


def decide_unclean_elections(view: ReplicationView) -> Decision[bool]:
    """Elect leaders for leaderless partitions whose topics allow unclean election; the result is
    whether there may be more.
    """
    election_of = view.elections()
    records: list[Message] = []
    for key in view.topics.leaderless():
        if len(records) == ELECTIONS_PER_ROUND_MAX:
            break
        topic = view.topics.topic(key[0])
        assert topic is not None, "a partition belongs to a topic"
        record = (
            _election_record(view, key, Election.UNCLEAN)
            if election_of(topic.name) is Election.UNCLEAN
            else None
        )
        if record is not None:
            records.append(record)
    return Decision(
        records, len(records) == ELECTIONS_PER_ROUND_MAX, partition_events(records, view.topics)
    )


def _elected(
    view: ReplicationView, name: str, number: int, election: Election
) -> PartitionChangeRecord | Refusal:
    topic = view.topics.topic_named(name)
    if topic is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(number)
    if partition is None:
        return Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}"
        )
    if partition.has_preferred_leader if election is Election.PREFERRED else partition.has_leader:
        return NOT_NEEDED
    return _election_record(view, (topic.topic_id, number), election) or NOT_AVAILABLE[election]


def _election_record(
    view: ReplicationView, key: PartitionKey, election: Election
) -> PartitionChangeRecord | None:
    partition = view.topics.partition(key)
    assert partition is not None, "elections are for existing partitions only"
    return view.change(key, partition, UNCHANGED, election)
