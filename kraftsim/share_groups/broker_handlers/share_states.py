"""InitializeShareGroupState, ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState and
ReadShareGroupStateSummary, which the share coordinator answers to other brokers.

Each partition of a request is an operation of its own. A request without a group id or without
partitions has an empty response.
Source: KIP-932; kafka.server.KafkaApis, org.apache.kafka.coordinator.share.ShareCoordinatorService.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kraftsim.core.decision import Refusal
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.slices import Slices
from kraftsim.share_groups.rules_share_states import (
    NO_DELIVERY_COMPLETE_COUNT,
    UNINITIALIZED_START_OFFSET,
    LeaderWrite,
    SharePartitionKey,
    StateBatch,
)
from kraftsim.share_groups.state_answers import (
    MESSAGES,
    NotStored,
    SharesBroker,
    StateAnswers,
    StateOutcome,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages import (
    k83_initialize_share_group_state as k83,
)
from protocol.messages import (
    k84_read_share_group_state as k84,
)
from protocol.messages import (
    k85_write_share_group_state as k85,
)
from protocol.messages import (
    k86_delete_share_group_state as k86,
)
from protocol.messages import (
    k87_read_share_group_state_summary as k87,
)
from protocol.schema import Message

if TYPE_CHECKING:
    from kraftsim.share_groups.rules_share_coordinator import (
        ShareDecision,
        ShareShard,
        ShareState,
    )

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOperation(Generic[Result]):
    """One of the five requests.

    `name` is Kafka's name of the operation, `tried` begins the message if the coordinator cannot
    answer. `decide` gets shard, key, row and wall time; `show` sets the result in a row.
    """

    key: ApiKey
    name: str
    tried: str
    row: type[Message]
    topic: type[Message]
    response: type[Message]
    decide: Callable[
        ["ShareShard", SharePartitionKey, Message, int], "ShareDecision[Result] | Refusal"
    ]
    show: Callable[[Message, Result], None]
    wants_partitions: bool = True
    """Whether a topic without partitions makes the whole request one without partitions."""

    def handle(self, broker: SharesBroker, call: Call) -> Answer | Deferred:
        """Return a row per partition: INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION,
        FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH, or an error of the coordinator.
        """
        request = call.body
        partition_count = sum(len(topic.partitions) for topic in request.topics)
        lacks_some = self.wants_partitions and call.over_whole(_lacks_partitions)
        if not request.group_id or not partition_count or lacks_some:
            return self.response()
        answers: StateAnswers[Result] = StateAnswers(
            partition_count,
            lambda topic_id, rows: self.topic(topic_id=topic_id, partitions=rows),
            lambda topics: self.response(results=topics),
        )
        for topic in request.topics:
            for row in topic.partitions:
                key = SharePartitionKey(request.group_id, topic.topic_id, row.partition)
                end = answers.begin(key.topic_id, key.partition)
                self._ask(broker, key, row, end)
        return answers.deferred

    def _ask(
        self,
        broker: SharesBroker,
        key: SharePartitionKey,
        asked: Message,
        end: Callable[[Message], None],
    ) -> None:
        led = broker.shares.coordinated(key)
        if isinstance(led, NotStored):
            end(self._row(key.partition, led))
            return
        led.ask(
            self.name,
            lambda shard, now_ms: self.decide(shard, key, asked, now_ms),
            lambda outcome: end(self._row(key.partition, outcome)),
        )

    def _row(self, partition: int, outcome: StateOutcome[Result]) -> Message:
        if isinstance(outcome, NotStored):
            why = f"{self.tried}: {outcome.why}"
            return self.row(partition=partition, error_code=outcome.error, error_message=why)
        if isinstance(outcome, Refusal):
            return self.row(
                partition=partition, error_code=outcome.error, error_message=outcome.why
            )
        row = self.row(partition=partition)
        self.show(row, outcome)
        return row

    def refuse(self, call: Call, error: ErrorCode) -> Answer:
        """Return a response with the same error for every partition."""
        why = MESSAGES.get(error)
        return self.response(
            results=[
                self.topic(
                    topic_id=topic.topic_id,
                    partitions=[
                        self.row(partition=row.partition, error_code=error, error_message=why)
                        for row in topic.partitions
                    ],
                )
                for topic in call.body.topics
            ]
        )

    def handler(self) -> Handler[SharesBroker]:
        """Return the handler of the API."""
        return Handler(key=self.key, handle=self.handle, refuse=self.refuse, slices=SLICES)


SLICES: Final = Slices(
    entries="topics", rows="results", inner="partitions", inner_rows="partitions"
)


def _lacks_partitions(request: Message, version: int) -> bool:
    """Return whether a topic of a request has no partitions."""
    return not all(topic.partitions for topic in request.topics)


# --------------------------------------------------------------------------------------------------
# The five operations


def _nothing(row: Message, result: None) -> None:
    """A change has no result."""


def _initialize(
    shard: "ShareShard", key: SharePartitionKey, asked: Message, now_ms: int
) -> "ShareDecision[None] | Refusal":
    return shard.decide_initialize(key, asked.state_epoch, asked.start_offset, now_ms)


def _write(
    shard: "ShareShard", key: SharePartitionKey, asked: Message, now_ms: int
) -> "ShareDecision[None] | Refusal":
    change = LeaderWrite(
        state_epoch=asked.state_epoch,
        leader_epoch=asked.leader_epoch,
        start_offset=asked.start_offset,
        delivery_complete_count=asked.delivery_complete_count,
        batches=_batches(asked.state_batches),
    )
    return shard.decide_write(key, change, now_ms)


def _batches(rows: Sequence[k85.StateBatch]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in rows
    )


def _read(
    shard: "ShareShard", key: SharePartitionKey, asked: Message, now_ms: int
) -> "ShareDecision[ShareState] | Refusal":
    return shard.decide_read(key, asked.leader_epoch, now_ms)


def _show_state(row: Message, state: "ShareState") -> None:
    row.state_epoch = state.state_epoch
    row.start_offset = state.start_offset
    row.state_batches = [
        k84.StateBatch(
            first_offset=each.first_offset,
            last_offset=each.last_offset,
            delivery_state=each.delivery_state,
            delivery_count=each.delivery_count,
        )
        for each in state.batches
    ]


def _summarize(
    shard: "ShareShard", key: SharePartitionKey, asked: Message, now_ms: int
) -> "ShareDecision[ShareState | None] | Refusal":
    return shard.decide_summary(key)


def _show_summary(row: Message, state: "ShareState | None") -> None:
    if state is None:
        row.start_offset = UNINITIALIZED_START_OFFSET
        row.delivery_complete_count = NO_DELIVERY_COMPLETE_COUNT
        return
    row.state_epoch = state.state_epoch
    row.leader_epoch = state.leader_epoch
    row.start_offset = state.start_offset
    row.delivery_complete_count = state.delivery_complete_count


def _delete(
    shard: "ShareShard", key: SharePartitionKey, asked: Message, now_ms: int
) -> "ShareDecision[None] | Refusal":
    return shard.decide_delete(key)


INITIALIZE_SHARE_GROUP_STATE: Final = StateOperation(
    key=ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    name="initialize-share-group-state",
    tried="Unable to initialize share group state",
    row=k83.PartitionResult,
    topic=k83.InitializeStateResult,
    response=k83.InitializeShareGroupStateResponse,
    decide=_initialize,
    show=_nothing,
    wants_partitions=False,
).handler()
READ_SHARE_GROUP_STATE: Final = StateOperation(
    key=ApiKey.READ_SHARE_GROUP_STATE,
    name="read-update-leader-epoch-state",
    tried="Unable to read share group state",
    row=k84.PartitionResult,
    topic=k84.ReadStateResult,
    response=k84.ReadShareGroupStateResponse,
    decide=_read,
    show=_show_state,
).handler()
WRITE_SHARE_GROUP_STATE: Final = StateOperation(
    key=ApiKey.WRITE_SHARE_GROUP_STATE,
    name="write-share-group-state",
    tried="Unable to write share group state",
    row=k85.PartitionResult,
    topic=k85.WriteStateResult,
    response=k85.WriteShareGroupStateResponse,
    decide=_write,
    show=_nothing,
).handler()
DELETE_SHARE_GROUP_STATE: Final = StateOperation(
    key=ApiKey.DELETE_SHARE_GROUP_STATE,
    name="delete-share-group-state",
    tried="Unable to delete share group state",
    row=k86.PartitionResult,
    topic=k86.DeleteStateResult,
    response=k86.DeleteShareGroupStateResponse,
    decide=_delete,
    show=_nothing,
).handler()
READ_SHARE_GROUP_STATE_SUMMARY: Final = StateOperation(
    key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    name="read-share-group-state-summary",
    tried="Unable to read share group state summary",
    row=k87.PartitionResult,
    topic=k87.ReadStateSummaryResult,
    response=k87.ReadShareGroupStateSummaryResponse,
    decide=_summarize,
    show=_show_summary,
).handler()

HANDLERS: Final = (
    INITIALIZE_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE,
    WRITE_SHARE_GROUP_STATE,
    DELETE_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE_SUMMARY,
)
