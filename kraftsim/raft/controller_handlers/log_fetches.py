"""Requests by which replicas of the metadata log get its records, or a snapshot in their place."""

from typing import Protocol

from kraftsim.partitions.fetch_responses import refused_fetch
from kraftsim.raft import rules_serving
from kraftsim.raft.quorum_requests import QuorumMember, WaitingFetches
from kraftsim.raft.rules_messages import fitted_response
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FetchRequest
from protocol.messages.k59_fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse


class FetchingController(Protocol):
    """A controller whose log is fetched."""

    @property
    def fetches(self) -> WaitingFetches:
        """The requests that wait for records."""
        ...


def handle_fetch(controller: FetchingController, call: Call) -> Answer | Deferred:
    """Fetch (1) on a controller: voters and observers of the quorum fetch the metadata log.

    Answer immediately, or when the fetch can be completed.

    Source: KIP-595, KafkaRaftClient.handleFetchRequest.
    """
    request = call.body
    assert isinstance(request, FetchRequest), "dispatch decodes by API key"
    return controller.fetches.fetch(request, call.api_version)


FETCH: Handler[FetchingController] = Handler(
    key=ApiKey.FETCH, handle=handle_fetch, refuse=refused_fetch
)


def handle_fetch_snapshot(controller: QuorumMember, call: Call) -> Answer | Deferred:
    """FetchSnapshot (59): a replica whose log end offset is below this log's start offset fetches a
    snapshot in chunks.

    Answer with a chunk, or with an error.

    Source: KIP-630, org.apache.kafka.raft.KafkaRaftClient.handleFetchSnapshotRequest.
    """
    request = call.body
    assert isinstance(request, FetchSnapshotRequest), "dispatch decodes by API key"
    later = Deferred()
    controller.raft.when_durable(
        lambda: later.complete_with(
            lambda: fitted_response(_answer(controller, request), call.api_version)
        )
    )
    return later if later.answer is None else later.answer


def _answer(controller: QuorumMember, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    raft = controller.raft
    outcome = rules_serving.snapshot_outcome(raft.quorum, request, raft.now_ms())
    if isinstance(outcome, FetchSnapshotResponse):
        return outcome
    snapshots = raft.store.snapshots
    size = snapshots.size_bytes(outcome.snapshot)
    if outcome.position >= size:
        return rules_serving.refused_snapshot()
    records = snapshots.read_piece(
        outcome.snapshot,
        outcome.position,
        min(max(outcome.max_bytes, 0), raft.quorum.settings.fetch_snapshot_max_bytes),
    )
    return rules_serving.snapshot_response(raft.quorum, outcome, size=size, records=records)


def _refuse_fetch_snapshot(call: Call, error: ErrorCode) -> Answer:
    return FetchSnapshotResponse(error_code=error)


FETCH_SNAPSHOT: Handler[QuorumMember] = Handler(
    key=ApiKey.FETCH_SNAPSHOT, handle=handle_fetch_snapshot, refuse=_refuse_fetch_snapshot
)


HANDLERS = (
    FETCH,
    FETCH_SNAPSHOT,
)
