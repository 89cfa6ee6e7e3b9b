"""A replica of the metadata quorum sends an answer of an earlier epoch in place of the new one, as
if it had not learned of the new epoch.

The answers of Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot contain their epoch,
and a replica must ignore one of an epoch before its own. Answers without an epoch
(AllocateProducerIds, BrokerHeartbeat) are not replaced: a receiver could not detect those.
Source: KIP-595, org.apache.kafka.raft.KafkaRaftClient.maybeHandleCommonResponse.
"""

from collections.abc import Hashable

from kraftsim.lab.faults.awaited_frame import await_frame
from kraftsim.lab.faults.fault import Between, Family, FaultKind
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.recorded_answers import RecordedAnswers
from kraftsim.world.simulated import FrameSeen
from protocol.api_keys import ApiKey
from protocol.messages.k01_fetch import FetchResponse
from protocol.messages.k52_vote import VoteResponse
from protocol.messages.k53_begin_quorum_epoch import BeginQuorumEpochResponse
from protocol.messages.k54_end_quorum_epoch import EndQuorumEpochResponse
from protocol.messages.k59_fetch_snapshot import FetchSnapshotResponse
from protocol.requests import decode_response_body

QUORUM_APIS = tuple(
    int(key)
    for key in (
        ApiKey.FETCH,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.FETCH_SNAPSHOT,
    )
)
CORRELATION_ID_BYTES = 4
NO_EPOCH = -1


def prepare(injection: Injection) -> None:
    """Start recording answers."""
    injection.recorded = RecordedAnswers(injection, QUORUM_APIS, _conversation)


def inject(injection: Injection) -> None:
    """Replace the target's next answers for which one of an earlier epoch was recorded; it is
    effective with the first.
    """
    recorded = injection.recorded
    assert recorded is not None, "answers are recorded since the fault was armed"
    left = injection.integer("times")

    def act(frame: FrameSeen) -> bool:
        def older(answers: list[bytes], current: bytes) -> bytes | None:
            nonlocal left
            epoch = epoch_of(frame.api_key, frame.api_version, current)
            others = [
                answer
                for answer in answers
                if NO_EPOCH < epoch_of(frame.api_key, frame.api_version, answer) < epoch
            ]
            if not others or left == 0:
                return None
            left -= 1
            injection.record_effect(
                f"an answer of API {frame.api_key} in epoch {epoch} was replaced by one of an "
                "earlier epoch"
            )
            return others[-1]

        if left and frame.request is not None and frame.request.data:
            recorded.replace(frame, older)
        return left == 0

    await_frame(injection, act, is_response=True, apis=QUORUM_APIS)
    injection.lasting(lambda: None, injection.integer("duration_ms"))


def epoch_of(api_key: int, api_version: int, content: bytes) -> int:
    """Return the leader epoch of a quorum answer; NO_EPOCH if it has none.

    `content` begins behind the correlation id.
    """
    body = decode_response_body(api_key, api_version, bytes(CORRELATION_ID_BYTES) + content)
    epochs: list[int] = []
    match body:
        case FetchResponse():
            epochs = [
                part.current_leader.leader_epoch
                for topic in body.responses
                for part in topic.partitions
            ]
        case FetchSnapshotResponse():
            epochs = [
                part.current_leader.leader_epoch
                for topic in body.topics
                for part in topic.partitions
            ]
        case VoteResponse() | BeginQuorumEpochResponse() | EndQuorumEpochResponse():
            epochs = [part.leader_epoch for topic in body.topics for part in topic.partitions]
    return epochs[0] if len(epochs) == 1 else NO_EPOCH


def _conversation(frame: FrameSeen) -> Hashable:
    """Return client, server, API and version of an answer."""
    return frame.client, frame.server, frame.api_key, frame.api_version


FAULT = FaultKind(
    name="old-epoch-answer",
    title="an answer of an earlier leader epoch",
    family=Family.PROTOCOL,
    inject=inject,
    needs_quorum=True,
    prepare=prepare,
    params={"times": 1, "duration_ms": 10_000},
    triggers_on=("time", "frame", "event", "state"),
    draws={"times": Between(1, 10), "duration_ms": Between(500, 8000)},
)
