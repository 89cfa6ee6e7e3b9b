"""The errors that a server of Apache Kafka can answer to a sound request, by API and by who asks
whom: a table for random faults of requests.

An error that no server gives finds nothing but a client that does not expect it. So the table has
only what the handler of the API in Apache Kafka answers to a request with which nothing is wrong:

- `before`: without having done the work. The coordinator moves or loads, the leader has moved, the
  controller has lost its office.
- `after`: with the work done, or under way. The append that the request waits for timed out or lost
  its leader, so that the client cannot know, and retries.
- `fatal`: after it the client gives up, or aborts its transaction. Only where a fault space says
  that the workload survives it (`FaultSpace.may_answer_fatal`).

An error that says something about the state of the sender which is not so (INVALID_PRODUCER_EPOCH
to the rightful coordinator of a transaction, FENCED_LEADER_EPOCH to the present leader of a
partition) is in no list: the server would have to lie, and Kafka has no guarantee against that.
Two are listed all the same. A member of a group that is answered UNKNOWN_MEMBER_ID or
ILLEGAL_GENERATION joins again, and its former self expires with its session: as after a restart. A
broker that is answered STALE_BROKER_EPOCH retries: as when a new controller lags.
Source: kafka.server.KafkaApis, ReplicaManager, kafka.coordinator.transaction.TransactionCoordinator
and TransactionStateManager, org.apache.kafka.coordinator.group.GroupCoordinatorService with
CoordinatorOperationExceptionHelper, each for the handler of the API. Of controllers the classes of
3.9.1 and 4.4.0: ControllerApis gives a deadline, after which REQUEST_TIMED_OUT is answered, to
CreateTopics, DeleteTopics, CreatePartitions, ElectLeaders, AlterPartitionReassignments and
BrokerHeartbeat only; ForwardingManagerImpl.ForwardingResponseHandler.onTimeout answers it to the
client of any forwarded request. KafkaRaftClient.validateLeaderOnlyRequest answers
BROKER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER and UNKNOWN_LEADER_EPOCH (of Fetch, FetchSnapshot,
UpdateRaftVoter), validateVoterOnlyRequest none that is retriable (of Vote, BeginQuorumEpoch,
EndQuorumEpoch). GroupMetadataManager.storeGroup of 3.9 and ClassicGroup since make
REBALANCE_IN_PROGRESS of a timed-out append of JoinGroup.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kraftsim.lab.faults.fault_space import BROKERS, CLIENTS, CONTROLLERS
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode

E = ErrorCode


@dataclass(frozen=True, slots=True)
class PossibleError:
    """An error of an API: in versions from `version_min` to `version_max` (None: no end).

    `is_done`: after the work, not instead of it. `of_transactions`: only to requests with a
    transactional id.
    """

    code: ErrorCode
    version_min: int = 0
    version_max: int | None = None
    is_done: bool = False
    is_fatal: bool = False
    of_transactions: bool = False


@dataclass(frozen=True, slots=True)
class PossibleErrors:
    """The errors of an API; `reason` is why there are none, or why one that seems possible is
    missing.
    """

    errors: tuple[PossibleError, ...]
    reason: str = ""


Listed = ErrorCode | PossibleError


def possible_errors(key: int, clients: str, servers: str) -> PossibleErrors:
    """Return the errors of an API between two roles. Raises KeyError if the table lacks it."""
    return TABLE[ApiKey(key), clients, servers]


def since(version: int, code: ErrorCode) -> PossibleError:
    """Return an error that a version of the API has brought."""
    return PossibleError(code, version_min=version)


def until(version: int, code: ErrorCode) -> PossibleError:
    """Return an error that the API has until a version."""
    return PossibleError(code, version_max=version)


def of_transactions(code: ErrorCode) -> PossibleError:
    """Return an error that only a request with a transactional id gets."""
    return PossibleError(code, of_transactions=True)


def _errors(
    *,
    before: Iterable[Listed] = (),
    after: Iterable[Listed] = (),
    fatal: Iterable[Listed] = (),
    reason: str = "",
) -> PossibleErrors:
    return PossibleErrors(
        (
            *(_error(each) for each in before),
            *(_error(each, is_done=True) for each in after),
            *(_error(each, is_fatal=True) for each in fatal),
        ),
        reason,
    )


def _error(listed: Listed, *, is_done: bool = False, is_fatal: bool = False) -> PossibleError:
    error = listed if isinstance(listed, PossibleError) else PossibleError(listed)
    return PossibleError(
        error.code,
        error.version_min,
        error.version_max,
        is_done,
        is_fatal,
        error.of_transactions,
    )


COORDINATOR_MOVES: Final = (
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR,
)
APPEND_FAILED: Final = (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR)
"""What a coordinator makes of an append to its log that was not replicated in time, or lost its
leader: TransactionStateManager.appendTransactionToLog, GroupCoordinatorService.
"""
TOPIC_UNKNOWN: Final = (until(12, E.UNKNOWN_TOPIC_OR_PARTITION), since(13, E.UNKNOWN_TOPIC_ID))
"""Of Produce and Fetch: the broker has not heard of the topic yet."""
LEADER_MOVES: Final = (E.NOT_LEADER_OR_FOLLOWER, E.KAFKA_STORAGE_ERROR)
CONTROLLER_MOVES: Final = (E.NOT_CONTROLLER,)
CONTROLLER_IS_LATE: Final = (E.NOT_CONTROLLER, E.REQUEST_TIMED_OUT)
"""The record was written: then the controller lost its office, or the deadline was over, that of
the controller or of the broker that forwards the request.
"""
RESIGNED: Final = (E.BROKER_NOT_AVAILABLE, E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_LEADER_EPOCH)
NO_ERROR_OF_ELECTIONS = (
    "KafkaRaftClient.validateVoterOnlyRequest: FENCED_LEADER_EPOCH names a later epoch, which must "
    "exist, and INVALID_REQUEST says that the request is not sound; the vote itself is the answer"
)
ZOOKEEPER_MODE = (
    "the controller of brokers in ZooKeeper mode does not send it again after an error: a broker "
    "answers one only to a former controller, or if it was registered again, when it is sent again "
    "anyway"
)
PRODUCER_AUTH: Final = (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,)

TABLE: Final[Mapping[tuple[ApiKey, str, str], PossibleErrors]] = {
    (ApiKey.PRODUCE, CLIENTS, BROKERS): _errors(
        before=(*LEADER_MOVES, *TOPIC_UNKNOWN, E.NOT_ENOUGH_REPLICAS),
        after=(
            E.REQUEST_TIMED_OUT,
            E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            E.NOT_LEADER_OR_FOLLOWER,
        ),
        fatal=(E.TOPIC_AUTHORIZATION_FAILED, since(11, E.TRANSACTION_ABORTABLE)),
    ),
    (ApiKey.FETCH, CLIENTS, BROKERS): _errors(
        before=(
            *LEADER_MOVES,
            *TOPIC_UNKNOWN,
            since(11, E.OFFSET_NOT_AVAILABLE),
            since(9, E.UNKNOWN_LEADER_EPOCH),
            since(7, E.FETCH_SESSION_ID_NOT_FOUND),
            since(7, E.INVALID_FETCH_SESSION_EPOCH),
        ),
        fatal=(E.TOPIC_AUTHORIZATION_FAILED,),
    ),
    (ApiKey.FETCH, BROKERS, BROKERS): _errors(
        before=(
            *LEADER_MOVES,
            *TOPIC_UNKNOWN,
            since(9, E.UNKNOWN_LEADER_EPOCH),
            since(7, E.FETCH_SESSION_ID_NOT_FOUND),
            since(7, E.INVALID_FETCH_SESSION_EPOCH),
        ),
        reason="after FENCED_LEADER_EPOCH a follower waits for new metadata, which must exist",
    ),
    (ApiKey.FETCH, BROKERS, CONTROLLERS): _errors(before=RESIGNED),
    (ApiKey.FETCH, CONTROLLERS, CONTROLLERS): _errors(before=RESIGNED),
    (ApiKey.LIST_OFFSETS, CLIENTS, BROKERS): _errors(
        before=(
            *LEADER_MOVES,
            E.UNKNOWN_TOPIC_OR_PARTITION,
            since(4, E.UNKNOWN_LEADER_EPOCH),
            since(5, E.OFFSET_NOT_AVAILABLE),
        ),
        fatal=(E.TOPIC_AUTHORIZATION_FAILED,),
    ),
    (ApiKey.LIST_OFFSETS, BROKERS, BROKERS): _errors(
        before=(*LEADER_MOVES, E.UNKNOWN_TOPIC_OR_PARTITION)
    ),
    (ApiKey.METADATA, CLIENTS, BROKERS): _errors(
        after=(E.LEADER_NOT_AVAILABLE, E.UNKNOWN_TOPIC_OR_PARTITION),
        fatal=(E.TOPIC_AUTHORIZATION_FAILED,),
        reason="a broker always names the brokers, so it is served, and its topics get the error",
    ),
    **{
        (ApiKey.API_VERSIONS, clients, servers): _errors(
            reason="UNSUPPORTED_VERSION has the form of version 0, whatever the request has"
        )
        for clients, servers in (
            (CLIENTS, BROKERS),
            (BROKERS, BROKERS),
            (BROKERS, CONTROLLERS),
            (CONTROLLERS, CONTROLLERS),
            (CONTROLLERS, BROKERS),
        )
    },
    (ApiKey.INIT_PRODUCER_ID, CLIENTS, BROKERS): _errors(
        before=(
            E.COORDINATOR_LOAD_IN_PROGRESS,
            *map(of_transactions, (*APPEND_FAILED, E.CONCURRENT_TRANSACTIONS)),
        ),
        after=map(of_transactions, APPEND_FAILED),
        fatal=map(of_transactions, PRODUCER_AUTH),
        reason="without a transactional id, any broker gives ids, and may wait for a block",
    ),
    (ApiKey.FIND_COORDINATOR, CLIENTS, BROKERS): _errors(before=(E.COORDINATOR_NOT_AVAILABLE,)),
    (ApiKey.ADD_PARTITIONS_TO_TXN, CLIENTS, BROKERS): _errors(
        before=(*COORDINATOR_MOVES, E.CONCURRENT_TRANSACTIONS, E.UNKNOWN_TOPIC_OR_PARTITION),
        after=APPEND_FAILED,
        fatal=(*PRODUCER_AUTH, E.TOPIC_AUTHORIZATION_FAILED),
    ),
    (ApiKey.ADD_PARTITIONS_TO_TXN, BROKERS, BROKERS): _errors(
        before=(*COORDINATOR_MOVES, E.CONCURRENT_TRANSACTIONS),
        after=APPEND_FAILED,
    ),
    (ApiKey.ADD_OFFSETS_TO_TXN, CLIENTS, BROKERS): _errors(
        before=(*COORDINATOR_MOVES, E.CONCURRENT_TRANSACTIONS),
        after=APPEND_FAILED,
        fatal=(*PRODUCER_AUTH, E.GROUP_AUTHORIZATION_FAILED, since(4, E.TRANSACTION_ABORTABLE)),
    ),
    (ApiKey.TXN_OFFSET_COMMIT, CLIENTS, BROKERS): _errors(
        before=(
            since(2, E.COORDINATOR_LOAD_IN_PROGRESS),
            E.COORDINATOR_NOT_AVAILABLE,
            E.NOT_COORDINATOR,
            until(5, E.UNKNOWN_TOPIC_OR_PARTITION),
        ),
        after=APPEND_FAILED,
        fatal=(
            E.GROUP_AUTHORIZATION_FAILED,
            since(3, E.ILLEGAL_GENERATION),
            since(3, E.UNKNOWN_MEMBER_ID),
            since(4, E.TRANSACTION_ABORTABLE),
        ),
        reason="before version 2 a coordinator that loads says COORDINATOR_NOT_AVAILABLE",
    ),
    (ApiKey.END_TXN, CLIENTS, BROKERS): _errors(
        before=(*COORDINATOR_MOVES, E.CONCURRENT_TRANSACTIONS),
        after=APPEND_FAILED,
        fatal=PRODUCER_AUTH,
    ),
    (ApiKey.OFFSET_FETCH, CLIENTS, BROKERS): _errors(
        before=(
            *COORDINATOR_MOVES,
            since(7, E.UNSTABLE_OFFSET_COMMIT),
        ),
        fatal=(E.GROUP_AUTHORIZATION_FAILED,),
    ),
    (ApiKey.OFFSET_COMMIT, CLIENTS, BROKERS): _errors(
        before=(*COORDINATOR_MOVES, until(9, E.UNKNOWN_TOPIC_OR_PARTITION)),
        after=APPEND_FAILED,
        fatal=(E.GROUP_AUTHORIZATION_FAILED, E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION),
    ),
    (ApiKey.JOIN_GROUP, CLIENTS, BROKERS): _errors(
        before=(*COORDINATOR_MOVES, E.UNKNOWN_MEMBER_ID),
        after=(E.NOT_COORDINATOR, E.REBALANCE_IN_PROGRESS),
        fatal=(E.GROUP_AUTHORIZATION_FAILED, since(4, E.GROUP_MAX_SIZE_REACHED)),
        reason="MEMBER_ID_REQUIRED comes with the id, which only the coordinator makes",
    ),
    (ApiKey.SYNC_GROUP, CLIENTS, BROKERS): _errors(
        before=(
            *APPEND_FAILED,
            E.REBALANCE_IN_PROGRESS,
            E.UNKNOWN_MEMBER_ID,
            E.ILLEGAL_GENERATION,
        ),
        after=APPEND_FAILED,
        fatal=(E.GROUP_AUTHORIZATION_FAILED,),
        reason="a coordinator that loads answers REBALANCE_IN_PROGRESS",
    ),
    (ApiKey.HEARTBEAT, CLIENTS, BROKERS): _errors(
        before=(
            *APPEND_FAILED,
            E.REBALANCE_IN_PROGRESS,
            E.UNKNOWN_MEMBER_ID,
            E.ILLEGAL_GENERATION,
        ),
        fatal=(E.GROUP_AUTHORIZATION_FAILED,),
        reason="a coordinator that loads answers no error",
    ),
    (ApiKey.LEAVE_GROUP, CLIENTS, BROKERS): _errors(
        before=(*COORDINATOR_MOVES, E.UNKNOWN_MEMBER_ID), after=APPEND_FAILED
    ),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, CLIENTS, BROKERS): _errors(
        before=(*COORDINATOR_MOVES, E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH),
        after=APPEND_FAILED,
        fatal=(E.GROUP_AUTHORIZATION_FAILED, E.GROUP_MAX_SIZE_REACHED),
    ),
    (ApiKey.SHARE_GROUP_HEARTBEAT, CLIENTS, BROKERS): _errors(
        before=(*COORDINATOR_MOVES, E.UNKNOWN_MEMBER_ID),
        after=APPEND_FAILED,
        fatal=(E.GROUP_AUTHORIZATION_FAILED, E.GROUP_MAX_SIZE_REACHED),
    ),
    (ApiKey.SHARE_FETCH, CLIENTS, BROKERS): _errors(
        before=(*LEADER_MOVES, E.SHARE_SESSION_NOT_FOUND, E.INVALID_SHARE_SESSION_EPOCH),
    ),
    (ApiKey.SHARE_ACKNOWLEDGE, CLIENTS, BROKERS): _errors(
        before=(*LEADER_MOVES, E.SHARE_SESSION_NOT_FOUND, E.INVALID_SHARE_SESSION_EPOCH),
    ),
    (ApiKey.FIND_COORDINATOR, BROKERS, BROKERS): _errors(before=(E.COORDINATOR_NOT_AVAILABLE,)),
    (ApiKey.INITIALIZE_SHARE_GROUP_STATE, BROKERS, BROKERS): _errors(before=COORDINATOR_MOVES),
    (ApiKey.READ_SHARE_GROUP_STATE, BROKERS, BROKERS): _errors(before=COORDINATOR_MOVES),
    (ApiKey.WRITE_SHARE_GROUP_STATE, BROKERS, BROKERS): _errors(
        before=COORDINATOR_MOVES, after=APPEND_FAILED
    ),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, CLIENTS, BROKERS): _errors(before=COORDINATOR_MOVES),
    (ApiKey.STREAMS_GROUP_HEARTBEAT, CLIENTS, BROKERS): _errors(
        before=(*COORDINATOR_MOVES, E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH),
        after=APPEND_FAILED,
        fatal=(E.GROUP_AUTHORIZATION_FAILED, E.GROUP_MAX_SIZE_REACHED, E.STREAMS_INVALID_TOPOLOGY),
    ),
    (ApiKey.STREAMS_GROUP_DESCRIBE, CLIENTS, BROKERS): _errors(before=COORDINATOR_MOVES),
    (ApiKey.DESCRIBE_GROUPS, CLIENTS, BROKERS): _errors(before=COORDINATOR_MOVES),
    (ApiKey.LIST_GROUPS, CLIENTS, BROKERS): _errors(
        before=(E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE)
    ),
    (ApiKey.DELETE_GROUPS, CLIENTS, BROKERS): _errors(
        before=COORDINATOR_MOVES, after=APPEND_FAILED
    ),
    (ApiKey.OFFSET_DELETE, CLIENTS, BROKERS): _errors(
        before=COORDINATOR_MOVES, after=APPEND_FAILED
    ),
    (ApiKey.DESCRIBE_TRANSACTIONS, CLIENTS, BROKERS): _errors(before=COORDINATOR_MOVES),
    (ApiKey.LIST_TRANSACTIONS, CLIENTS, BROKERS): _errors(before=(E.COORDINATOR_LOAD_IN_PROGRESS,)),
    (ApiKey.DESCRIBE_PRODUCERS, CLIENTS, BROKERS): _errors(
        before=(E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION)
    ),
    (ApiKey.DELETE_RECORDS, CLIENTS, BROKERS): _errors(
        before=(*LEADER_MOVES, E.UNKNOWN_TOPIC_OR_PARTITION),
        after=(E.REQUEST_TIMED_OUT, E.NOT_LEADER_OR_FOLLOWER),
    ),
    (ApiKey.DESCRIBE_CONFIGS, CLIENTS, BROKERS): _errors(before=(E.UNKNOWN_TOPIC_OR_PARTITION,)),
    (ApiKey.ALTER_REPLICA_LOG_DIRS, CLIENTS, BROKERS): _errors(
        before=(E.REPLICA_NOT_AVAILABLE, E.KAFKA_STORAGE_ERROR)
    ),
    **{
        (key, CLIENTS, BROKERS): _errors(before=CONTROLLER_MOVES, after=CONTROLLER_IS_LATE)
        for key in (
            ApiKey.CREATE_TOPICS,
            ApiKey.DELETE_TOPICS,
            ApiKey.CREATE_PARTITIONS,
            ApiKey.ELECT_LEADERS,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            ApiKey.ALTER_CONFIGS,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.UPDATE_FEATURES,
            ApiKey.ALTER_CLIENT_QUOTAS,
            ApiKey.CREATE_ACLS,
            ApiKey.DELETE_ACLS,
        )
    },
    **{
        (key, clients, CONTROLLERS): _errors(before=CONTROLLER_MOVES, after=CONTROLLER_MOVES)
        for key, clients in (
            (ApiKey.BROKER_REGISTRATION, BROKERS),
            (ApiKey.CONTROLLER_REGISTRATION, CONTROLLERS),
        )
    },
    (ApiKey.BROKER_HEARTBEAT, BROKERS, CONTROLLERS): _errors(
        before=(E.NOT_CONTROLLER, E.STALE_BROKER_EPOCH, E.BROKER_ID_NOT_REGISTERED),
        after=CONTROLLER_IS_LATE,
        reason="a new controller that lacks the registration yet answers that it is stale",
    ),
    (ApiKey.ALLOCATE_PRODUCER_IDS, BROKERS, CONTROLLERS): _errors(
        before=(E.NOT_CONTROLLER, E.STALE_BROKER_EPOCH), after=CONTROLLER_MOVES
    ),
    (ApiKey.ALLOCATE_PRODUCER_IDS, BROKERS, BROKERS): _errors(
        before=(E.NOT_CONTROLLER, E.STALE_BROKER_EPOCH), after=(E.NOT_CONTROLLER,)
    ),
    (ApiKey.ALTER_PARTITION, BROKERS, CONTROLLERS): _errors(
        before=(
            E.NOT_CONTROLLER,
            E.STALE_BROKER_EPOCH,
            since(2, E.INELIGIBLE_REPLICA),
            since(2, E.OPERATION_NOT_ATTEMPTED),
        ),
        after=CONTROLLER_MOVES,
        reason="after INVALID_UPDATE_VERSION and FENCED_LEADER_EPOCH a leader waits for new "
        "metadata, which must exist",
    ),
    (ApiKey.ALTER_PARTITION, BROKERS, BROKERS): _errors(
        before=(E.NOT_CONTROLLER, E.STALE_BROKER_EPOCH), after=(E.NOT_CONTROLLER,)
    ),
    (ApiKey.ASSIGN_REPLICAS_TO_DIRS, BROKERS, CONTROLLERS): _errors(
        before=(E.NOT_CONTROLLER, E.STALE_BROKER_EPOCH), after=CONTROLLER_MOVES
    ),
    (ApiKey.ENVELOPE, BROKERS, CONTROLLERS): _errors(before=CONTROLLER_MOVES),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, BROKERS, BROKERS): _errors(
        before=(*LEADER_MOVES, E.UNKNOWN_TOPIC_OR_PARTITION, since(2, E.UNKNOWN_LEADER_EPOCH))
    ),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, CLIENTS, BROKERS): _errors(
        before=(
            *LEADER_MOVES,
            E.UNKNOWN_TOPIC_OR_PARTITION,
            since(2, E.UNKNOWN_LEADER_EPOCH),
        )
    ),
    (ApiKey.WRITE_TXN_MARKERS, BROKERS, BROKERS): _errors(
        before=(
            *LEADER_MOVES,
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.NOT_ENOUGH_REPLICAS,
        ),
        after=(
            E.REQUEST_TIMED_OUT,
            E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            E.NOT_LEADER_OR_FOLLOWER,
        ),
        reason="INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED end the transaction's "
        "markers: only a former coordinator gets them",
    ),
    **{
        (key, CONTROLLERS, CONTROLLERS): _errors(reason=NO_ERROR_OF_ELECTIONS)
        for key in (ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH)
    },
    (ApiKey.FETCH_SNAPSHOT, CONTROLLERS, CONTROLLERS): _errors(
        before=(*RESIGNED, E.SNAPSHOT_NOT_FOUND, E.POSITION_OUT_OF_RANGE)
    ),
    (ApiKey.FETCH_SNAPSHOT, BROKERS, CONTROLLERS): _errors(
        before=(*RESIGNED, E.SNAPSHOT_NOT_FOUND, E.POSITION_OUT_OF_RANGE)
    ),
    (ApiKey.UPDATE_RAFT_VOTER, CONTROLLERS, CONTROLLERS): _errors(
        before=(E.BROKER_NOT_AVAILABLE, E.NOT_LEADER_OR_FOLLOWER)
    ),
    **{
        (key, controllers, BROKERS): _errors(reason=ZOOKEEPER_MODE)
        for key in (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA)
        for controllers in (BROKERS, CONTROLLERS)
    },
    (ApiKey.CONTROLLED_SHUTDOWN, BROKERS, BROKERS): _errors(
        before=(E.STALE_CONTROLLER_EPOCH,), after=(E.STALE_CONTROLLER_EPOCH,)
    ),
}
"""All errors, by API, role of the client and role of the server."""
