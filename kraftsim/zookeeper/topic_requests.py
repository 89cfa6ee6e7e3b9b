"""Admin requests for topics and partitions to a ZooKeeper-mode controller.

Topic requests are answered when this broker's metadata shows the result, or when the timeout
expires.
Source: kafka.server.{ZkAdminManager, DelayedCreatePartitions, DelayedDeleteTopics, KafkaApis},
KafkaController.processReplicaLeaderElection.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

from kraftsim.core.decision import Decision, Refusal
from kraftsim.events.event import Event
from kraftsim.metadata.controller_handlers import partitions, topics
from kraftsim.metadata.events import TopicCreated, TopicRefused
from kraftsim.metadata.rules_partition_changes import Election, partition_events
from kraftsim.metadata.rules_partitions import ELECTIONS
from kraftsim.metadata.rules_topic_table import PartitionKey, Topic
from kraftsim.metadata.rules_topics import (
    PARTITIONS_PER_REQUEST_MAX,
    TWICE,
    DeletedTopic,
    NewTopic,
    RefusedTopic,
    TopicToDelete,
)
from kraftsim.server.call import Answer, Call, Deferred
from kraftsim.server.client_quotas import QUOTA_EXCEEDED, Allowance
from kraftsim.server.large_requests import or_refused
from kraftsim.zookeeper.client import ZookeeperRefused
from kraftsim.zookeeper.controller_context import ControllerContext
from kraftsim.zookeeper.reassignments import NO_PARTITION
from kraftsim.zookeeper.rules_partitions import NOT_MADE, decide_more_partitions, decide_topic
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from protocol.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from protocol.schema import Message
from protocol.uuids import ZERO_UUID, uuid_text
from protocol.zookeeper.kafka_znodes import delete_topic_path
from protocol.zookeeper.op_codes import ZookeeperError


class TopicRow(Protocol):
    """A row of a response."""

    error_code: int


POLL_MS: Final = 10
STATES_SINCE: Final = 6
NOT_NEEDED: Final = Refusal(ErrorCode.ELECTION_NOT_NEEDED)
GOING: Final = Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")


def create_topics(context: ControllerContext, call: Call) -> Answer | Deferred:
    """Create topics; answered once this broker knows their leaders from its own UpdateMetadata
    request.
    """
    request = call.body
    assert isinstance(request, CreateTopicsRequest), "dispatch decodes by API key"
    allowance = context.mutations.allowance(
        call, is_strict=call.api_version >= topics.CREATION_STRICT_SINCE
    )
    counts = Counter(topic.name for topic in request.topics)
    rows: list[CreatableTopicResult] = []
    records: list[Message] = []
    facts: list[Event] = []
    made_count = 0
    for name in [name for name, count in counts.items() if count > 1]:
        rows.append(topics.row_of(RefusedTopic(name=name, refusal=TWICE)))
    for topic in request.topics:
        if counts[topic.name] > 1:
            continue
        outcome = _decide_topic(context, topic, allowance, PARTITIONS_PER_REQUEST_MAX - made_count)
        if isinstance(outcome, RefusedTopic):
            context.world.emit(
                TopicRefused(
                    topic=topic.name, error_code=outcome.refusal.error, reason=outcome.refusal.why
                )
            )
            rows.append(topics.row_of(outcome))
            continue
        new_topic, made = outcome
        rows.append(topics.row_of(new_topic))
        records += made
        made_count += new_topic.partition_count
        facts.append(
            TopicCreated(
                topic=topic.name,
                topic_id=uuid_text(new_topic.topic_id),
                partition_count=new_topic.partition_count,
            )
        )
    if request.validate_only:
        records, facts = [], []
        for row in rows:
            row.topic_id = ZERO_UUID
    decision = Decision(
        records,
        None,
        (*facts, *partition_events(records, context.metadata_writer.state.replication.topics)),
    )
    answer = context.metadata_writer.commit(
        decision,
        lambda offsets: CreateTopicsResponse(throttle_time_ms=allowance.pause_ms, topics=rows),
    )
    waited = [row for row in rows if row.error_code == ErrorCode.NONE and not request.validate_only]
    return _when_led(context, answer, [(row.name, row) for row in waited], request.timeout_ms)


def _decide_topic(
    context: ControllerContext, topic: CreatableTopic, allowance: Allowance, partitions_max: int
) -> tuple[NewTopic, list[Message]] | RefusedTopic:
    if not allowance.admits(len(topic.assignments) or max(topic.num_partitions, 1)):
        return RefusedTopic(
            name=topic.name, refusal=Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, QUOTA_EXCEEDED)
        )
    config = context.config
    return decide_topic(
        context.metadata_writer.state,
        topic,
        context.world.random("topics"),
        default_partitions=config.num_partitions,
        default_factor=config.default_replication_factor,
        partitions_max=partitions_max,
    )


def create_partitions(context: ControllerContext, call: Call) -> Answer | Deferred:
    """Add partitions to topics; answered once this broker knows their leaders."""
    request = call.body
    assert isinstance(request, CreatePartitionsRequest), "dispatch decodes by API key"
    counts = Counter(topic.name for topic in request.topics)
    twice = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
    rows = [_widened(name, twice) for name, count in counts.items() if count > 1]
    records: list[Message] = []
    for topic in request.topics:
        if counts[topic.name] > 1:
            continue
        going = (
            Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
            if topic.name in context.deletions.queued
            else None
        )
        left = PARTITIONS_PER_REQUEST_MAX - len(records)
        made = going or decide_more_partitions(
            context.metadata_writer.state, topic, context.world.random("topics"), left
        )
        rows.append(_widened(topic.name, made if isinstance(made, Refusal) else None))
        records += [] if isinstance(made, Refusal) else made
    if request.validate_only:
        records = []
    decision = Decision(
        records, None, partition_events(records, context.metadata_writer.state.replication.topics)
    )
    answer = context.metadata_writer.commit(
        decision, lambda offsets: CreatePartitionsResponse(results=rows)
    )
    waited = [
        (row.name, row)
        for row in rows
        if row.error_code == ErrorCode.NONE and not request.validate_only
    ]
    return _when_led(context, answer, waited, request.timeout_ms)


def _widened(name: str, refusal: Refusal | None) -> CreatePartitionsTopicResult:
    if refusal is None:
        return CreatePartitionsTopicResult(name=name, error_message=None)
    return CreatePartitionsTopicResult(
        name=name, error_code=refusal.error, error_message=refusal.message
    )


def _when_led(
    context: ControllerContext,
    answer: Answer | Deferred,
    rows: Sequence[tuple[str, TopicRow]],
    timeout_ms: int,
) -> Answer | Deferred:
    """Return an answer once this broker knows leaders of all partitions of some topics; topics that
    miss the timeout are answered with a timeout error.
    """
    later = Deferred()

    async def wait(result: Answer) -> None:
        until_ms = context.world.clock.monotonic_ms() + timeout_ms
        while (
            context.is_active
            and not all(_is_led(context, name) for name, _ in rows)
            and context.world.clock.monotonic_ms() < until_ms
        ):
            await asyncio.sleep(POLL_MS / 1000)
        for name, row in rows:
            if not _is_led(context, name):
                row.error_code = ErrorCode.REQUEST_TIMED_OUT
        later.complete(result)

    def wait_for_leaders() -> None:
        result = answer.answer if isinstance(answer, Deferred) else answer
        assert result is not None, "called once the answer is complete"
        if all(_is_led(context, name) for name, _ in rows):
            later.complete(result)
        else:
            context.shell.tasks.spawn(wait(result), "topics-to-be-led")

    if isinstance(answer, Deferred) and answer.answer is None:
        answer.attach(wait_for_leaders)
    else:
        wait_for_leaders()
    return later if later.answer is None else later.answer


def _is_led(context: ControllerContext, name: str) -> bool:
    """Return whether this broker knows leaders of all partitions; true for a topic that was deleted
    meanwhile.
    """
    wanted, known = (
        context.metadata_writer.state.replication.topics.topic_named(name),
        context.controller.image.topic(name),
    )
    if wanted is None:
        return True
    return known is not None and all(
        (each := known.partitions.get(number)) is not None and each.has_leader
        for number in wanted.partitions
    )


def delete_topics(context: ControllerContext, call: Call) -> Answer | Deferred:
    """Request the deletion of topics, and answer when they are gone."""
    request = call.body
    assert isinstance(request, DeleteTopicsRequest), "dispatch decodes by API key"
    if not context.config.delete_topic_enable:
        disabled = (
            ErrorCode.TOPIC_DELETION_DISABLED
            if call.api_version >= topics.DISABLED_SINCE
            else ErrorCode.INVALID_REQUEST
        )
        return _refused(call, disabled)
    decision = context.metadata_writer.state.replication.decide_delete_topics(
        _asked(request, call.api_version)
    )
    if isinstance(decision, Refusal):
        return _refused(call, decision.error)
    later = Deferred()
    work = _delete(context, decision.result, request.timeout_ms, later)
    context.shell.tasks.spawn(or_refused(work, later, call, _refused), "topics-to-be-deleted")
    return later


async def _delete(
    context: ControllerContext, results: list[DeletedTopic], timeout_ms: int, later: Deferred
) -> None:
    names = [
        result.name for result in results if result.refusal is None and result.name is not None
    ]
    gone: dict[str, None] = {}
    all_gone = asyncio.Event()

    def is_gone(name: str) -> None:
        gone[name] = None
        if len(gone) == len(names):
            all_gone.set()

    failed: dict[str, None] = {}
    for name in names:
        # misc: mypy infers no type for a lambda with a default
        context.deletions.when_gone(name, lambda name=name: is_gone(name))  # type: ignore[misc]
        try:
            await context.client.create(delete_topic_path(name), None)
        except ZookeeperRefused as refused:
            if refused.error != ZookeeperError.NODE_EXISTS:
                failed[name] = None
    try:
        async with asyncio.timeout(max(timeout_ms, 0) / 1000):
            if names:
                await all_gone.wait()
    except TimeoutError:
        pass  # deletion continues after the timeout
    later.complete(
        DeleteTopicsResponse(responses=[_deleted(result, gone, failed) for result in results])
    )


def _deleted(
    result: DeletedTopic, gone: Collection[str], failed: Collection[str]
) -> DeletableTopicResult:
    row = DeletableTopicResult(name=result.name, topic_id=result.topic_id, error_message=None)
    if result.refusal is not None:
        row.error_code, row.error_message = result.refusal.error, result.refusal.message
    elif result.name in failed:
        row.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
    elif result.name not in gone:
        row.error_code = ErrorCode.REQUEST_TIMED_OUT
    return row


def _asked(request: DeleteTopicsRequest, version: int) -> list[TopicToDelete]:
    if version < STATES_SINCE:
        return [TopicToDelete(name=name) for name in request.topic_names]
    return [TopicToDelete(name=topic.name, topic_id=topic.topic_id) for topic in request.topics]


def _refused(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, DeleteTopicsRequest), "dispatch decodes by API key"
    rows = [
        DeletableTopicResult(name=each.name, topic_id=each.topic_id, error_code=error)
        for each in _asked(call.body, call.api_version)
    ]
    return DeleteTopicsResponse(responses=rows)


def elect_leaders(context: ControllerContext, call: Call) -> Answer | Deferred:
    """Run the requested elections; a request for all partitions returns only those that needed an
    election.
    """
    request = call.body
    assert isinstance(request, ElectLeadersRequest), "dispatch decodes by API key"
    election = ELECTIONS.get(request.election_type)
    refuse = partitions.ELECT_LEADERS.refuse
    if election is None:
        assert refuse is not None, "what a controller decides can be refused"
        return refuse(call, ErrorCode.INVALID_REQUEST)
    topics = context.metadata_writer.state.replication.topics
    asks_for_all = request.topic_partitions is None
    if request.topic_partitions is None:
        asked = [
            (topic.name, [number for number in sorted(topic.partitions) if _was_led(topic, number)])
            for topic in topics.topics()
        ]
    else:
        asked = [(row.topic, list(row.partitions)) for row in request.topic_partitions]
    found = {
        (name, number): _electable(context, topics.topic_id(name), number, election)
        for name, numbers in asked
        for number in dict.fromkeys(numbers)
    }
    keys = [key for key in found.values() if not isinstance(key, Refusal)]
    held = (
        context.elect_preferred(keys)
        if election is Election.PREFERRED
        else context.elect_uncleanly(keys)
    )
    rows = []
    for name, numbers in asked:
        outcomes = [
            (number, _outcome(context, found[name, number], held, election))
            for number in dict.fromkeys(numbers)
        ]
        results = [
            _elected(number, refusal)
            for number, refusal in outcomes
            if not (asks_for_all and refusal == NOT_NEEDED)
        ]
        if results:
            rows.append(ReplicaElectionResult(topic=name, partition_result=results))
    return context.metadata_writer.commit(
        Decision([], None), lambda offsets: ElectLeadersResponse(replica_election_results=rows)
    )


def _was_led(topic: Topic, number: int) -> bool:
    """Return whether a partition was ever announced to brokers: a request for all partitions covers
    only those.
    """
    return topic.partitions[number].partition_epoch != NOT_MADE


def _electable(
    context: ControllerContext, topic_id: bytes | None, number: int, election: Election
) -> PartitionKey | Refusal:
    """Return the partition to hold an election for, or the refusal."""
    key: PartitionKey | None = None if topic_id is None else (topic_id, number)
    partition = None if key is None else context.partition(key)
    if key is None or partition is None:
        return NO_PARTITION
    if context.is_being_deleted(key):
        return GOING
    if partition.partition_epoch == NOT_MADE:
        return Refusal(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            if election is Election.PREFERRED
            else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )
    is_led = partition.has_leader and context.metadata_writer.state.cluster.is_active(
        partition.leader
    )
    return (
        NOT_NEEDED
        if (partition.has_preferred_leader if election is Election.PREFERRED else is_led)
        else key
    )


def _outcome(
    context: ControllerContext,
    found: PartitionKey | Refusal,
    held: Mapping[PartitionKey, bool],
    election: Election,
) -> Refusal | None:
    if isinstance(found, Refusal) or held[found]:
        return found if isinstance(found, Refusal) else None
    is_preferred = election is Election.PREFERRED
    error = (
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        if is_preferred
        else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    )
    strategy = (
        "PreferredReplicaPartitionLeaderElectionStrategy"
        if is_preferred
        else "OfflinePartitionLeaderElectionStrategy(true)"
    )
    return Refusal(
        error,
        f"Failed to elect leader for partition {context.topic_of(found).name}-{found[1]} under "
        f"strategy {strategy}",
    )


def _elected(number: int, refusal: Refusal | None) -> PartitionResult:
    if refusal is None:
        return PartitionResult(partition_id=number, error_message=None)
    return PartitionResult(
        partition_id=number, error_code=refusal.error, error_message=refusal.message
    )


def alter_partition_reassignments(context: ControllerContext, call: Call) -> Answer | Deferred:
    """Start or cancel reassignments."""
    request = call.body
    assert isinstance(request, AlterPartitionReassignmentsRequest), "dispatch decodes by API key"
    topics = context.metadata_writer.state.replication.topics
    rows = []
    for row in request.topics:
        topic_id = topics.topic_id(row.name)
        results = []
        for asked in row.partitions:
            key = None if topic_id is None else (topic_id, asked.partition_index)
            results.append(_moved(asked.partition_index, context.moves.ask(key, asked.replicas)))
        rows.append(ReassignableTopicResponse(name=row.name, partitions=results))
    return context.metadata_writer.commit(
        Decision([], None),
        lambda offsets: AlterPartitionReassignmentsResponse(error_message=None, responses=rows),
    )


def _moved(number: int, refusal: Refusal | None) -> ReassignablePartitionResponse:
    if refusal is None:
        return ReassignablePartitionResponse(partition_index=number, error_message=None)
    return ReassignablePartitionResponse(
        partition_index=number, error_code=refusal.error, error_message=refusal.message
    )
