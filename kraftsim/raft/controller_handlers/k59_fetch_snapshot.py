"""FetchSnapshot (59): a replica whose log end offset is below this log's start offset fetches a
snapshot in chunks.

Source: KIP-630, org.apache.kafka.raft.KafkaRaftClient.handleFetchSnapshotRequest.
"""

from kraftsim.raft import rules_serving
from kraftsim.raft.quorum_requests import QuorumMember
from kraftsim.raft.rules_messages import fitted_response
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k59_fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse


def handle(controller: QuorumMember, call: Call) -> Answer | Deferred:
    """Answer with a chunk, or with an error."""
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


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return FetchSnapshotResponse(error_code=error)


HANDLER: Handler[QuorumMember] = Handler(key=ApiKey.FETCH_SNAPSHOT, handle=handle, refuse=_refuse)
