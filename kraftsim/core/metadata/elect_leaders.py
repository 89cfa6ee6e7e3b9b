"""Elections of leaders: those that people ask for, and those that the controller holds by itself from time to time.

Source: KIP-183, KIP-460, ReplicationControlManager.{electLeaders, maybeBalancePartitionLeaders, maybeElectUncleanLeaders}.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Final

from kraftsim.core.decision import Decision, Refusal, Steps, ends_step, whole
from kraftsim.core.metadata.partition_change import AS_IT_IS, Election
from kraftsim.core.metadata.partition_facts import partition_facts
from kraftsim.core.metadata.replication_view import RECORDS_PER_OPERATION_MAX, TOO_LARGE, ReplicationView
from kraftsim.core.metadata.topic_table import PartitionKey
from protocol.errors import ErrorCode
from protocol.messages.k43_elect_leaders import PREFERRED, UNCLEAN, ElectLeadersRequest
from protocol.metadata.m05_partition_change import PartitionChangeRecord
from protocol.schema import Message

ELECTIONS_PER_ROUND_MAX: Final = 1_000
"""ReplicationControlManager.MAX_ELECTIONS_PER_IMBALANCE: afterwards others get their turn."""
ELECTIONS: Final = {PREFERRED: Election.PREFERRED, UNCLEAN: Election.UNCLEAN}
NOT_AVAILABLE: Final = {
    Election.PREFERRED: Refusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."),
    Election.UNCLEAN: Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."),
}
NOT_NEEDED: Final = Refusal(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectedPartition:
    """What became of the election of one partition."""

    topic: str
    partition: int
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectedTopic:
    """The partitions of one topic, as they were asked for."""

    topic: str
    partitions: tuple[ElectedPartition, ...]


def decide_elect_leaders(view: ReplicationView, request: ElectLeadersRequest) -> Decision[list[ElectedTopic]] | Refusal:
    """Propose the elections that a request asks for. Asked for all partitions, those that need none are left out of the results.

    Refuses the whole with INVALID_REQUEST (an election of another type) or POLICY_VIOLATION (too much at once).
    """
    return whole(elect_leaders_steps(view, request))


def elect_leaders_steps(view: ReplicationView, request: ElectLeadersRequest) -> Steps[Decision[list[ElectedTopic]] | Refusal]:
    """The same, step by step."""
    election = ELECTIONS.get(request.election_type)
    if election is None:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    asks_for_all = request.topic_partitions is None
    if request.topic_partitions is None:
        asked: Iterable[tuple[str, Iterable[int]]] = ((topic.name, sorted(topic.partitions)) for topic in view.topics.topics())
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
    return Decision(records, results, partition_facts(records, view.topics))


def decide_balance(view: ReplicationView) -> Decision[bool]:
    """Propose to give partitions back to their preferred leaders where these are in sync and in service; the result is whether there may be more."""
    records: list[Message] = []
    for key in view.topics.imbalanced():
        if len(records) == ELECTIONS_PER_ROUND_MAX:
            break
        record = _election_record(view, key, Election.PREFERRED)
        if record is not None:
            records.append(record)
    return Decision(records, len(records) == ELECTIONS_PER_ROUND_MAX, partition_facts(records, view.topics))


def decide_unclean_elections(view: ReplicationView) -> Decision[bool]:
    """Propose leaders for partitions without one whose topics allow to lose records; the result is whether there may be more."""
    election_of = view.elections()
    records: list[Message] = []
    for key in view.topics.leaderless():
        if len(records) == ELECTIONS_PER_ROUND_MAX:
            break
        topic = view.topics.topic(key[0])
        assert topic is not None, "a partition belongs to a topic"
        record = _election_record(view, key, Election.UNCLEAN) if election_of(topic.name) is Election.UNCLEAN else None
        if record is not None:
            records.append(record)
    return Decision(records, len(records) == ELECTIONS_PER_ROUND_MAX, partition_facts(records, view.topics))


def _elected(view: ReplicationView, name: str, number: int, election: Election) -> PartitionChangeRecord | Refusal:
    topic = view.topics.topic_named(name)
    if topic is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(number)
    if partition is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}")
    if partition.has_preferred_leader if election is Election.PREFERRED else partition.has_leader:
        return NOT_NEEDED
    return _election_record(view, (topic.topic_id, number), election) or NOT_AVAILABLE[election]


def _election_record(view: ReplicationView, key: PartitionKey, election: Election) -> PartitionChangeRecord | None:
    partition = view.topics.partition(key)
    assert partition is not None, "only what is there is elected for"
    return view.change(key, partition, AS_IT_IS, election)
