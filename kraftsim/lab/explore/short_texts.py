"""A short text for each kind of event, for narrow columns: 'elected e5', 'appended 17..19',
'vote->102 granted'.

A kind without a text here falls back to its name and its first field.
"""

from collections.abc import Callable, Mapping
from typing import Final

from protocol.api_keys import ApiKey

Fields = Mapping[str, int | str | bool | None]

WORDS: Final[Mapping[str, str]] = {
    "BatchAppended": "{topic}-{partition} +{first_offset}..{last_offset}",
    "BatchReplicated": "{topic}-{partition} replicated {first_offset}..{last_offset}",
    "BrokerEpochReceived": "registered e{broker_epoch}",
    "BrokerFenced": "fence {broker_id}",
    "BrokerRegistered": "register {broker_id}",
    "BrokerRegistrationRefused": "refuse {broker_id}: {reason}",
    "BrokerUnfenced": "unfence {broker_id}",
    "BrokerUnregistered": "unregister {broker_id}",
    "ClientInitialized": "id {producer_id}",
    "ClientStarted": "begins",
    "ClientStopped": "ends",
    "ConnectionClosed": "closed {peer}: {reason}",
    "ConnectionOpened": "open {peer}",
    "ControllerElected": "ELECTED e{leader_epoch}",
    "ControllerRegistered": "register {controller_id}",
    "ControllerResigned": "resigned e{leader_epoch}",
    "ReplicationFailed": "{topic}-{partition} cannot fetch",
    "DiskFailed": "{operation} failed: {reason}",
    "DuplicateAnswered": "{topic}-{partition} duplicate {first_offset}",
    "FeatureLevelChanged": "{feature} {level}",
    "HighWatermarkMoved": "hw {high_watermark}",
    "InitProducerIdRefused": "id refused {error_code}",
    "IsrChangeAsked": "{topic}-{partition} isr? {isr}",
    "IsrChanged": "{topic}-{partition} isr {isr}",
    "LeaderElected": "leads {topic}-{partition} e{leader_epoch}",
    "LeaderFollowed": "follows {leader_id} {topic}-{partition}",
    "LeaderLogHeld": "holds {first_offset}..<{end_offset} e{epoch}",
    "LeadershipLost": "resigned {topic}-{partition}",
    "ListenerOpened": "listens {port}",
    "LogStartMoved": "{topic}-{partition} starts at {log_start_offset}",
    "MetadataAppended": "appended {first_offset}..{last_offset}",
    "MetadataApplied": "applied <{next_offset}",
    "MetadataCommitted": "committed <{high_watermark}",
    "MetadataFlushed": "flush <{end_offset}",
    "MetadataReplicated": "replicated {first_offset}..{last_offset}",
    "MetadataReverted": "REVERTED to {to_offset}",
    "MetadataTruncated": "TRUNCATED to {end_offset}",
    "MetadataWritten": "wrote {first_offset}..{last_offset} e{epoch}",
    "NodeFailed": "FAILED: {reason}",
    "NodeReady": "ready",
    "NodeStopped": "stopped",
    "PartitionChanged": "{topic}-{partition} leader {leader}",
    "PartitionCreated": "{topic}-{partition} created",
    "PartitionHighWatermarkMoved": "{topic}-{partition} hw {high_watermark}",
    "PartitionTruncated": "{topic}-{partition} TRUNCATED to {log_end_offset}",
    "ProduceRefused": "{topic}-{partition} refused {error_code}",
    "ProducerIdBlockAllocated": "BLOCK {first_producer_id}..<{next_producer_id} to {broker_id}",
    "ProducerIdBlockReceived": "got block {first_producer_id}..<{next_producer_id}",
    "ProducerIdBlockRefused": "no block: {error_code}",
    "ProducerIdBlockRequested": "requests block",
    "ProducerIdReturned": "returns id {producer_id}",
    "ProducerStateExpired": "expires {producer_id}",
    "RecordAcknowledged": "{record_key} acked at {offset}",
    "RecordReportedDuplicate": "{record_key} called a duplicate",
    "RecordFailed": "{record_key} failed {error_code}",
    "RecordRead": "{record_key} read",
    "RecordSent": "{record_key} sent",
    "RequestRefused": "refused {api_key}: {reason}",
    "SnapshotLoaded": "LOADED snapshot <{end_offset}",
    "SnapshotWritten": "snapshot <{end_offset}",
    "TopicCreated": "topic {topic}",
    "VoteSent": "vote for {candidate_id} announced",
    "VotersChanged": "voters {voters}",
}


def short(kind: str, fields: Fields, incarnation: int = 1) -> str:
    """Return the short text of an event."""
    special = SPECIAL.get(kind)
    if special is not None:
        return special(fields, incarnation)
    form = WORDS.get(kind)
    if form is not None:
        return form.format(**fields).replace("__cluster_metadata-0", "log")
    main = next(iter(fields.items()), None)
    return kind if main is None else f"{kind} {main[1]}"


def api_name(api_key: object) -> str:
    """Return the name of an API as Kafka writes it; its number if it is unknown."""
    name = next((key.name for key in ApiKey if key == api_key), None)
    return f"API {api_key}" if name is None else name.replace("_", " ").title().replace(" ", "")


def _role(fields: Fields, incarnation: int) -> str:
    leader = f" of {fields['leader_id']}" if fields["role"] == "Follower" else ""
    return f"{str(fields['role']).lower()}{leader} e{fields['leader_epoch']}"


def _vote(fields: Fields, incarnation: int) -> str:
    what = "pre-vote" if fields["is_pre_vote"] else "vote"
    return (
        f"{what}->{fields['candidate_id']} {'granted' if fields['is_granted'] else 'refused'} "
        f"e{fields['leader_epoch']}"
    )


def _started(fields: Fields, incarnation: int) -> str:
    return "starts" if incarnation == 1 else f"RESTARTED #{incarnation}"


def _recovered(fields: Fields, incarnation: int) -> str:
    truncated = (
        f", {fields['truncated_bytes']} bytes truncated" if fields["truncated_bytes"] else ""
    )
    return f"log <{fields['next_offset']}{truncated}"


def _peer(fields: Fields) -> str:
    """Return the peer: the id of a controller, which differs from a broker's by its size, else the
    name.
    """
    return str(fields["peer"]).removeprefix("controller-").partition(":")[0]


def _sent(fields: Fields, incarnation: int) -> str:
    return (
        f"{api_name(fields['api_key'])}{' answer' if fields['is_response'] else ''}->"
        f"{_peer(fields)}"
    )


def _received(fields: Fields, incarnation: int) -> str:
    return (
        f"{api_name(fields['api_key'])}{' answer' if fields['is_response'] else ''}<-"
        f"{_peer(fields)}"
    )


SPECIAL: Final[Mapping[str, Callable[[Fields, int], str]]] = {
    "FrameReceived": _received,
    "FrameSent": _sent,
    "LogRecovered": _recovered,
    "NodeStarted": _started,
    "RaftRoleChanged": _role,
    "VoteAnswered": _vote,
}
