"""What people ask of a controller in ZooKeeper's time about topics and their partitions.

Topics are answered for when brokers know them, or know them no more, or when the time that was given is over.
Source: kafka.server.{ZkAdminManager, DelayedCreatePartitions, DelayedDeleteTopics, KafkaApis}, KafkaController.processReplicaLeaderElection.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, cast

from kraftsim.core.decision import Decision, Refusal
from kraftsim.core.metadata.delete_topics import DeletedTopic, TopicToDelete
from kraftsim.core.metadata.elect_leaders import ELECTIONS
from kraftsim.core.metadata.partition_change import Election
from kraftsim.core.metadata.topic_table import PartitionKey
from kraftsim.node.call import Answer, Call, Deferred
from kraftsim.node.controller.handlers import k19_create_topics, k20_delete_topics, k43_elect_leaders
from kraftsim.node.zookeeper.client import ZookeeperRefused
from kraftsim.node.zookeeper_mode.moves import NO_PARTITION
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.k20_delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from protocol.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from protocol.zookeeper.kafka_admin_znodes import delete_topic_path
from protocol.zookeeper.op_codes import ZookeeperError

if TYPE_CHECKING:
    from kraftsim.node.controller.controller import Controller
    from kraftsim.node.zookeeper_mode.reign import Reign

POLL_MS: Final = 10
STATES_SINCE: Final = 6
NOT_NEEDED: Final = Refusal(ErrorCode.ELECTION_NOT_NEEDED)
GOING: Final = Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")


def create_topics(reign: "Reign", call: Call) -> Answer | Deferred:
    """Make topics; answered once this broker knows them, which it does when it was told as all others."""
    request = call.body
    assert isinstance(request, CreateTopicsRequest), "dispatch decodes by API key"
    answer = k19_create_topics.handle(cast("Controller", reign), call)
    return _after(reign, answer, lambda made: _known(reign, made), request.timeout_ms)


def _known(reign: "Reign", answer: Answer) -> bool:
    """Tell whether this broker knows every topic that was made."""
    if not isinstance(answer, CreateTopicsResponse):
        return True
    image = reign.controller.mode.image
    made = [row for row in answer.topics if row.error_code == ErrorCode.NONE]
    known = reign.ledger.state.replication.topics
    return all(known.topic_named(row.name) is None or image.topic(row.name) is not None for row in made)


def _after(reign: "Reign", answer: Answer | Deferred, is_done: Callable[[Answer], bool], timeout_ms: int) -> Answer | Deferred:
    """Return an answer once something is so, or the time is over."""
    later = Deferred()

    async def wait(told: Answer) -> None:
        until_ms = reign.world.clock.monotonic_ms() + timeout_ms
        while reign.is_active and not is_done(told) and reign.world.clock.monotonic_ms() < until_ms:
            await asyncio.sleep(POLL_MS / 1000)
        later.complete(told)

    def told_then_wait() -> None:
        told = answer.answer if isinstance(answer, Deferred) else answer
        assert told is not None, "an answer woke this"
        if is_done(told):
            later.complete(told)
        else:
            reign.shell.tasks.spawn(wait(told), "topics-to-be-known")

    if isinstance(answer, Deferred) and answer.answer is None:
        answer.attach(told_then_wait)
    else:
        told_then_wait()
    return later if later.answer is None else later.answer


def delete_topics(reign: "Reign", call: Call) -> Answer | Deferred:
    """Ask that topics be deleted, and answer when they are gone."""
    request = call.body
    assert isinstance(request, DeleteTopicsRequest), "dispatch decodes by API key"
    if not reign.config.delete_topic_enable:
        disabled = ErrorCode.TOPIC_DELETION_DISABLED if call.api_version >= k20_delete_topics.DISABLED_SINCE else ErrorCode.INVALID_REQUEST
        return _refused(call, disabled)
    decision = reign.ledger.state.replication.decide_delete_topics(_asked(request, call.api_version))
    if isinstance(decision, Refusal):
        return _refused(call, decision.error)
    later = Deferred()
    reign.shell.tasks.spawn(_delete(reign, decision.result, request.timeout_ms, later), "topics-to-be-deleted")
    return later


async def _delete(reign: "Reign", results: list[DeletedTopic], timeout_ms: int, later: Deferred) -> None:
    names = [result.name for result in results if result.refusal is None and result.name is not None]
    gone: dict[str, None] = {}
    all_gone = asyncio.Event()

    def is_gone(name: str) -> None:
        gone[name] = None
        if len(gone) == len(names):
            all_gone.set()

    failed: dict[str, None] = {}
    for name in names:
        reign.deletions.when_gone(name, lambda name=name: is_gone(name))  # type: ignore[misc]
        try:
            await reign.client.create(delete_topic_path(name), None)
        except ZookeeperRefused as refused:
            if refused.error != ZookeeperError.NODE_EXISTS:
                failed[name] = None
    try:
        async with asyncio.timeout(max(timeout_ms, 0) / 1000):
            if names:
                await all_gone.wait()
    except TimeoutError:
        pass  # they are deleted later, or never
    later.complete(DeleteTopicsResponse(responses=[_deleted(result, gone, failed) for result in results]))


def _deleted(result: DeletedTopic, gone: Collection[str], failed: Collection[str]) -> DeletableTopicResult:
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
    rows = [DeletableTopicResult(name=each.name, topic_id=each.topic_id, error_code=error) for each in _asked(call.body, call.api_version)]
    return DeleteTopicsResponse(responses=rows)


def elect_leaders(reign: "Reign", call: Call) -> Answer | Deferred:
    """Hold elections that people ask for; asked for all partitions, only those that need one are told of."""
    request = call.body
    assert isinstance(request, ElectLeadersRequest), "dispatch decodes by API key"
    election = ELECTIONS.get(request.election_type)
    refuse = k43_elect_leaders.HANDLER.refuse
    if election is None:
        assert refuse is not None, "what a controller decides can be refused"
        return refuse(call, ErrorCode.INVALID_REQUEST)
    topics = reign.ledger.state.replication.topics
    asks_for_all = request.topic_partitions is None
    if request.topic_partitions is None:
        asked = [(topic.name, sorted(topic.partitions)) for topic in topics.topics()]
    else:
        asked = [(row.topic, list(row.partitions)) for row in request.topic_partitions]
    rows = []
    for name, numbers in asked:
        outcomes = [(number, _elect(reign, topics.topic_id(name), number, election)) for number in dict.fromkeys(numbers)]
        results = [_elected(number, refusal) for number, refusal in outcomes if not (asks_for_all and refusal == NOT_NEEDED)]
        if results:
            rows.append(ReplicaElectionResult(topic=name, partition_result=results))
    return reign.ledger.commit(Decision([], None), lambda offsets: ElectLeadersResponse(replica_election_results=rows))


def _elect(reign: "Reign", topic_id: bytes | None, number: int, election: Election) -> Refusal | None:
    key: PartitionKey | None = None if topic_id is None else (topic_id, number)
    partition = None if key is None else reign.partition(key)
    if key is None or partition is None:
        return NO_PARTITION
    if reign.is_going(key):
        return GOING
    is_led = partition.has_leader and reign.ledger.state.cluster.is_active(partition.leader)
    if partition.has_preferred_leader if election is Election.PREFERRED else is_led:
        return NOT_NEEDED
    if election is Election.PREFERRED:
        elected = reign.elect_preferred([key])[key]
        error = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    else:
        elected = reign.elect_uncleanly(key)
        error = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    strategy = "PreferredReplicaPartitionLeaderElectionStrategy" if election is Election.PREFERRED else "OfflinePartitionLeaderElectionStrategy(true)"
    why = f"Failed to elect leader for partition {reign.topic_of(key).name}-{number} under strategy {strategy}"
    return None if elected else Refusal(error, why)


def _elected(number: int, refusal: Refusal | None) -> PartitionResult:
    if refusal is None:
        return PartitionResult(partition_id=number, error_message=None)
    return PartitionResult(partition_id=number, error_code=refusal.error, error_message=refusal.message)


def alter_partition_reassignments(reign: "Reign", call: Call) -> Answer | Deferred:
    """Begin moves, or call them off."""
    request = call.body
    assert isinstance(request, AlterPartitionReassignmentsRequest), "dispatch decodes by API key"
    topics = reign.ledger.state.replication.topics
    rows = []
    for row in request.topics:
        topic_id = topics.topic_id(row.name)
        results = []
        for asked in row.partitions:
            key = None if topic_id is None else (topic_id, asked.partition_index)
            results.append(_moved(asked.partition_index, reign.moves.ask(key, asked.replicas)))
        rows.append(ReassignableTopicResponse(name=row.name, partitions=results))
    return reign.ledger.commit(Decision([], None), lambda offsets: AlterPartitionReassignmentsResponse(error_message=None, responses=rows))


def _moved(number: int, refusal: Refusal | None) -> ReassignablePartitionResponse:
    if refusal is None:
        return ReassignablePartitionResponse(partition_index=number, error_message=None)
    return ReassignablePartitionResponse(partition_index=number, error_code=refusal.error, error_message=refusal.message)
