"""The persister of a broker: looks up share coordinators, sends them states of share-partitions,
and tries again.

To one broker there is one round of requests of each kind at a time; what comes meanwhile waits, and
is sent together, a request per group.
Source: org.apache.kafka.server.share.persister.{DefaultStatePersister, PersisterStateManager},
kafka.server.share.ShareCoordinatorMetadataCacheHelperImpl.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from kraftsim.groups.rules_assignors import java_order, uuid_hash
from kraftsim.groups.rules_timing import partition_of
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_topic_names import SHARE_GROUP_STATE
from kraftsim.server.outbound import NoCommonVersion, PeerConnection, VersionRange
from kraftsim.server.shell import NodeShell
from kraftsim.server.slices import ENTRIES_PER_SLICE
from kraftsim.share_groups.persister import PersisterResult, ReadState, StateSummary
from kraftsim.share_groups.rules_persister import (
    LOST,
    RETRIABLE,
    Attempts,
    PersisterFailure,
    exhausted,
    failure,
    not_answered,
    not_found,
    text_of,
)
from kraftsim.share_groups.rules_share_states import SharePartitionKey, StateBatch
from kraftsim.transactions.broker_connections import BrokerConnections
from kraftsim.world.interface import YieldPoint
from protocol.errors import ErrorCode
from protocol.messages import k83_initialize_share_group_state as k83
from protocol.messages import k84_read_share_group_state as k84
from protocol.messages import k85_write_share_group_state as k85
from protocol.messages import k86_delete_share_group_state as k86
from protocol.messages import k87_read_share_group_state_summary as k87
from protocol.messages.k10_find_coordinator import (
    SHARE,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.schema import Message

CODES: Final = {int(code): code for code in ErrorCode}
SHUTDOWN: Final = PersisterFailure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The broker shuts down.")


@dataclass(frozen=True, slots=True, eq=False)
class StateRpc:
    """One of the five requests. `name` is what Kafka's messages call it."""

    name: str
    request: type[Message]
    topic: type[Message]
    row: type[Message]
    colon: str = ":"
    """What follows "share partition" in one of the messages."""


INITIALIZE: Final = StateRpc(
    "initialize state",
    k83.InitializeShareGroupStateRequest,
    k83.InitializeStateData,
    k83.PartitionData,
)
READ: Final = StateRpc(
    "read state", k84.ReadShareGroupStateRequest, k84.ReadStateData, k84.PartitionData, ""
)
WRITE: Final = StateRpc(
    "write state", k85.WriteShareGroupStateRequest, k85.WriteStateData, k85.PartitionData
)
DELETE: Final = StateRpc(
    "delete state", k86.DeleteShareGroupStateRequest, k86.DeleteStateData, k86.PartitionData
)
SUMMARY: Final = StateRpc(
    "read state summary",
    k87.ReadShareGroupStateSummaryRequest,
    k87.ReadStateSummaryData,
    k87.PartitionData,
    "",
)
Outcome: TypeAlias = Message | PersisterFailure
"""The row of a share-partition without an error, or why there is none."""
Lost: TypeAlias = ErrorCode
"""A request was not answered."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A share-partition that waits for a response."""

    key: SharePartitionKey
    row: Message
    answered: "asyncio.Future[Message | Lost | None]"
    """Its row; None if the response has none; or why there is no response."""


class StatePersister:
    """Implements `Persister` over the network, to this broker itself, too."""

    def __init__(
        self,
        shell: NodeShell,
        image: Callable[[], MetadataImage],
        *,
        own_versions: Mapping[int, VersionRange],
        retries_lost: bool,
    ) -> None:
        self._shell = shell
        self._image = image
        self._retriable = RETRIABLE | LOST if retries_lost else RETRIABLE
        self._random = shell.world.random("share state persister")
        self._connections = BrokerConnections(
            shell, "persister", address_of=self._address_of, own_versions=own_versions
        )
        self._opening: dict[int, asyncio.Lock] = {}
        self._waiting: dict[tuple[int, StateRpc], dict[str, list[Asked]]] = {}
        self._in_flight: dict[tuple[int, StateRpc], None] = {}
        self._active: dict[int, asyncio.Future[Outcome]] = {}
        self._begun_count = 0
        self._is_closed = False

    # The protocol Persister
    # ----------------------------------------------------------------------------------------------

    async def initialize(
        self, group_id: str, rows: Sequence[tuple[SharePartitionKey, int, int]]
    ) -> list[PersisterResult]:
        """Begin states again."""
        data = (
            (
                key,
                k83.PartitionData(
                    partition=key.partition, state_epoch=state_epoch, start_offset=start_offset
                ),
            )
            for key, state_epoch, start_offset in rows
        )
        begun = await self._begin_all(INITIALIZE, data)
        return [_result(row[0], await each) for row, each in zip(rows, begun, strict=True)]

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ReadState:
        """Read a state, and fence leaders of earlier epochs."""
        row = k84.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        outcome = await self._begin(READ, key, row)
        if isinstance(outcome, PersisterFailure):
            return ReadState(error=outcome.error, message=outcome.message)
        return ReadState(
            state_epoch=outcome.state_epoch,
            start_offset=outcome.start_offset,
            batches=tuple(
                StateBatch(
                    each.first_offset, each.last_offset, each.delivery_state, each.delivery_count
                )
                for each in outcome.state_batches
            ),
        )

    async def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> PersisterResult:
        """Store changes."""
        row = k85.PartitionData(
            partition=key.partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            state_batches=[
                k85.StateBatch(
                    first_offset=each.first_offset,
                    last_offset=each.last_offset,
                    delivery_state=each.delivery_state,
                    delivery_count=each.delivery_count,
                )
                for each in batches
            ],
        )
        return _result(key, await self._begin(WRITE, key, row))

    async def delete(
        self, group_id: str, keys: Sequence[SharePartitionKey]
    ) -> list[PersisterResult]:
        """Delete states."""
        data = ((key, k86.PartitionData(partition=key.partition)) for key in keys)
        begun = await self._begin_all(DELETE, data)
        return [_result(key, await each) for key, each in zip(keys, begun, strict=True)]

    async def read_summary(
        self, group_id: str, rows: Sequence[tuple[SharePartitionKey, int]]
    ) -> list[StateSummary]:
        """Read states without their batches."""
        data = (
            (key, k87.PartitionData(partition=key.partition, leader_epoch=leader_epoch))
            for key, leader_epoch in rows
        )
        begun = await self._begin_all(SUMMARY, data)
        return [_summary(key, await each) for (key, _), each in zip(rows, begun, strict=True)]

    def close(self) -> None:
        """Fail everything that is under way, and close all connections."""
        self._is_closed = True
        active, self._active = self._active, {}
        for each in active.values():
            if not each.done():
                each.set_result(SHUTDOWN)
        self._connections.close()

    def abort(self) -> None:
        """Close every connection at once, like a killed process."""
        self._is_closed = True
        self._connections.abort()

    # One share-partition
    # ----------------------------------------------------------------------------------------------

    async def _begin_all(
        self, rpc: StateRpc, rows: Iterable[tuple[SharePartitionKey, Message]]
    ) -> "list[asyncio.Future[Outcome]]":
        """Begin an operation on each share-partition; many of them do not hold the loop."""
        begun: list[asyncio.Future[Outcome]] = []
        for number, (key, row) in enumerate(rows, 1):
            begun.append(self._begin(rpc, key, row))
            if number % ENTRIES_PER_SLICE == 0:
                await asyncio.sleep(0)
        return begun

    def _begin(
        self, rpc: StateRpc, key: SharePartitionKey, row: Message
    ) -> "asyncio.Future[Outcome]":
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if self._is_closed:
            outcome.set_result(SHUTDOWN)
            return outcome
        number = self._begun_count
        self._begun_count += 1
        self._active[number] = outcome

        async def work() -> None:
            found = await self._try(rpc, key, row)
            self._active.pop(number, None)
            if not outcome.done():
                outcome.set_result(found)

        self._shell.tasks.spawn(work(), f"{rpc.name} of {key.coordinator_key}")
        return outcome

    async def _try(self, rpc: StateRpc, key: SharePartitionKey, row: Message) -> Outcome:
        """Ask the coordinator until it answers, refuses for good, or was asked often enough."""
        look_ups, attempts = Attempts(), Attempts()
        while True:
            coordinator_id = self._known_coordinator(key)
            if coordinator_id is None:
                found = await self._look_up(key, look_ups)
                if isinstance(found, PersisterFailure):
                    return found
                if found is None:
                    continue
                coordinator_id = found
            answer = await self._ask(coordinator_id, rpc, key, row)
            attempts.count()
            if answer is None:
                return not_answered(key, rpc.name, rpc.colon)
            error, why = _error_of(answer)
            if error is ErrorCode.NONE:
                assert not isinstance(answer, ErrorCode), "a lost request has an error"
                return answer
            if error not in self._retriable:
                return failure(error, rpc.name, why)
            pause_ms = attempts.pause_ms(self._random.random())
            if pause_ms is None:
                return exhausted(error, rpc.name)
            await asyncio.sleep(pause_ms / 1000)

    # Looking up
    # ----------------------------------------------------------------------------------------------

    def _known_coordinator(self, key: SharePartitionKey) -> int | None:
        """Return the coordinator by the metadata of this broker, if that has it."""
        topic = self._image().topic(SHARE_GROUP_STATE)
        if topic is None:
            return None
        leader = topic.partitions[partition_of(key.coordinator_key, len(topic.partitions))].leader
        return None if self._address_of(leader) is None else leader

    async def _look_up(
        self, key: SharePartitionKey, attempts: Attempts
    ) -> int | PersisterFailure | None:
        """Ask a random broker for the coordinator; None after a pause, to begin again."""
        alive = [
            broker.broker_id
            for broker in self._image().alive_brokers()
            if self._address_of(broker.broker_id) is not None
        ]
        if not alive:
            return not_found(ErrorCode.COORDINATOR_NOT_AVAILABLE, is_last_attempt=False)
        answer = await self._send(
            alive[self._random.randrange(len(alive))],
            FindCoordinatorRequest(coordinator_keys=[key.coordinator_key], key_type=SHARE),
        )
        attempts.count()
        why: str | None = None
        if isinstance(answer, ErrorCode):
            error = answer
        else:
            assert isinstance(answer, FindCoordinatorResponse), "the response of FindCoordinator"
            if len(answer.coordinators) != 1:
                why = "Invalid response with multiple coordinators."
                return not_found(ErrorCode.UNKNOWN_SERVER_ERROR, is_last_attempt=False, why=why)
            row = answer.coordinators[0]
            error, why = _error_of(row)
            if error is ErrorCode.NONE:
                attempts.succeed()
                return int(row.node_id)
        if error not in self._retriable:
            return not_found(error, is_last_attempt=False, why=why)
        pause_ms = attempts.pause_ms(self._random.random())
        if pause_ms is None:
            return not_found(error, is_last_attempt=True)
        await asyncio.sleep(pause_ms / 1000)
        return None

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        registered = self._image().broker(broker_id)
        if registered is None or registered.fenced:
            return None
        found = registered.listener(self._shell.config.inter_broker_listener_name)
        return None if found is None else (found.host, found.port)

    # Requests
    # ----------------------------------------------------------------------------------------------

    async def _ask(
        self, broker_id: int, rpc: StateRpc, key: SharePartitionKey, row: Message
    ) -> Message | Lost | None:
        answered: asyncio.Future[Message | Lost | None] = asyncio.get_running_loop().create_future()
        groups = self._waiting.setdefault((broker_id, rpc), {})
        groups.setdefault(key.group_id, []).append(Asked(key, row, answered))
        self._send_waiting(broker_id, rpc)
        return await answered

    def _send_waiting(self, broker_id: int, rpc: StateRpc) -> None:
        """Send what waits, if no request of this kind is in flight to this broker."""
        if (broker_id, rpc) in self._in_flight or (broker_id, rpc) not in self._waiting:
            return
        self._in_flight[broker_id, rpc] = None
        for group_id, asked in self._waiting.pop((broker_id, rpc)).items():
            self._shell.tasks.spawn(
                self._exchange(broker_id, rpc, group_id, asked), f"{rpc.name} of {group_id}"
            )

    async def _exchange(
        self, broker_id: int, rpc: StateRpc, group_id: str, asked: list[Asked]
    ) -> None:
        """Send the request of a group, and pass on its response or its loss."""
        answer = await self._send(broker_id, _request(rpc, group_id, asked))
        await self._shell.world.yield_point(YieldPoint.SHARE_STATE_ANSWERED)
        self._in_flight.pop((broker_id, rpc), None)
        rows: dict[tuple[bytes, int], Message] = {}
        if not isinstance(answer, ErrorCode):
            for topic in answer.results:
                for row in topic.partitions:
                    rows.setdefault((topic.topic_id, row.partition), row)
        for each in asked:
            if not each.answered.done():
                each.answered.set_result(
                    answer
                    if isinstance(answer, ErrorCode)
                    else rows.get((each.key.topic_id, each.key.partition))
                )
        self._send_waiting(broker_id, rpc)

    async def _send(self, broker_id: int, request: Message) -> Message | Lost:
        """Return the response, or why there is none."""
        try:
            connection = await self._connected(broker_id)
            return await connection.request(request)
        except NoCommonVersion:
            return ErrorCode.UNSUPPORTED_VERSION
        except TimeoutError:
            self._connections.leave(broker_id)
            return ErrorCode.REQUEST_TIMED_OUT
        except OSError:
            self._connections.leave(broker_id)
            return ErrorCode.NETWORK_EXCEPTION

    async def _connected(self, broker_id: int) -> PeerConnection:
        """Return a connection. Requests to one broker wait until the first of them has opened it.
        Raises OSError.
        """
        async with self._opening.setdefault(broker_id, asyncio.Lock()):
            return await self._connections.to(broker_id)


def _request(rpc: StateRpc, group_id: str, asked: Sequence[Asked]) -> Message:
    """Build the request of a group; topics are in the order of Java's hash maps."""
    topics: dict[bytes, list[Message]] = {}
    for each in asked:
        topics.setdefault(each.key.topic_id, []).append(each.row)
    return rpc.request(
        group_id=group_id,
        topics=[
            rpc.topic(topic_id=topic_id, partitions=topics[topic_id])
            for topic_id in java_order(topics, uuid_hash)
        ],
    )


def _error_of(answer: Message | Lost) -> tuple[ErrorCode, str | None]:
    """Return the error of a row with its message, or why there is no response."""
    if isinstance(answer, ErrorCode):
        return answer, text_of(answer)
    error = CODES.get(answer.error_code, ErrorCode.UNKNOWN_SERVER_ERROR)
    return error, answer.error_message or None


def _result(key: SharePartitionKey, outcome: Outcome) -> PersisterResult:
    if isinstance(outcome, PersisterFailure):
        return PersisterResult(key, outcome.error, outcome.message)
    return PersisterResult(key)


def _summary(key: SharePartitionKey, outcome: Outcome) -> StateSummary:
    if isinstance(outcome, PersisterFailure):
        return StateSummary(key=key, error=outcome.error, message=outcome.message)
    return StateSummary(
        key=key,
        state_epoch=outcome.state_epoch,
        leader_epoch=outcome.leader_epoch,
        start_offset=outcome.start_offset,
        delivery_complete_count=outcome.delivery_complete_count,
    )
