"""The style of event kinds in the report: the family that gives the colour, whether it is an error,
and the label beside a dot.

A kind without a row here is drawn in the family of its module and with its own name.
"""

from typing import Final

from kraftsim.events.catalogue import KINDS, family

FAMILIES: Final = {
    "log": "logs",
    "transactions": "transactions",
    "ids": "producer ids",
    "clients": "clients",
    "groups": "groups",
    "metadata": "metadata",
    "raft": "quorum",
    "zookeeper": "ZooKeeper",
    "migration": "migration",
    "tiered": "tiered storage",
    "leases": "lease_pid",
    "nodes": "nodes",
    "connections": "frames",
    "run": "run",
    "faults": "faults and violations",
}
"""Family -> its name in the legend, in the order of the legend.

The page's style sheet has a colour for each; only that of the faults is red.
"""

_FAMILY_OF_MODULE: Final = {
    "client_telemetry": "clients",
    "clients": "clients",
    "clients_share": "groups",
    "clients_transactions": "transactions",
    "groups": "groups",
    "lease_pid": "leases",
    "metadata": "metadata",
    "migration": "migration",
    "partitions": "log",
    "partitions_transactions": "transactions",
    "producer_ids": "ids",
    "raft": "raft",
    "runs": "run",
    "server": "nodes",
    "server_connections": "connections",
    "share_groups": "groups",
    "share_groups_states": "groups",
    "tiered_storage": "tiered",
    "transactions": "transactions",
    "zookeeper": "zookeeper",
}
_FAULTS: Final = (
    "FaultArmed",
    "FaultInjected",
    "FaultTookEffect",
    "FaultEnded",
    "InvariantViolated",
)
_BAD_NEWS: Final = ("Refused", "Failed", "Violated", "Fenced", "Reverted", "Resigned")
_LABELS: Final = {
    "BatchAppended": "append {topic}-{partition} @{first_offset}",
    "DuplicateAnswered": "duplicate {topic}-{partition} @{first_offset}",
    "ProduceRefused": "refuse {topic}-{partition}, error {error_code}",
    "FinalBatch": "{topic}-{partition} @{first_offset}",
    "FinalRecord": "{record_key} @{offset}",
    "FinalLog": "{topic}-{partition} ends at {next_offset}",
    "LeaderElected": "leads {topic}-{partition}",
    "ProducerIdBlockAllocated": "block {first_producer_id} to broker {broker_id}",
    "ProducerIdBlockReceived": "got block {first_producer_id}",
    "ProducerIdBlockRequested": "ask for a block",
    "ProducerIdBlockRefused": "no block, error {error_code}",
    "ProducerIdReturned": "id {producer_id}",
    "InitProducerIdRefused": "no id, error {error_code}",
    "RecordSent": "send {record_key}",
    "RecordAcknowledged": "ack {record_key} @{offset}",
    "RecordReportedDuplicate": "duplicate {record_key}",
    "RecordFailed": "failed {record_key}",
    "RecordRead": "read {record_key} @{offset}",
    "ApplicationStarted": "started",
    "ApplicationEnded": "{reason}",
    "FactStated": "{name} {key} = {value}",
    "ClientInitialized": "holds id {producer_id}",
    "MetadataAppended": "write @{first_offset} {record_kinds}",
    "MetadataCommitted": "committed to {high_watermark}",
    "MetadataApplied": "applied to {next_offset}",
    "ControllerElected": "elected, epoch {leader_epoch}",
    "BrokerRegistered": "broker {broker_id} registered",
    "BrokerUnfenced": "broker {broker_id} unfenced",
    "BrokerFenced": "broker {broker_id} fenced",
    "TopicCreated": "topic {topic}",
    "LogRecovered": "recovered {topic}-{partition} to {next_offset}",
    "NodeStarted": "started",
    "NodeReady": "ready",
    "NodeStopped": "stopped",
    "FrameSent": "{api_key} #{correlation_id}",
    "FrameReceived": "{api_key} #{correlation_id}",
    "RequestRefused": "refuse {api_key}",
    "FaultInjected": "{fault} {target}",
    "FaultEnded": "end of {fault} {target}",
    "FaultTookEffect": "{fault} {effect}",
    "PhaseBegan": "phase {phase}",
    "MetadataLogBegun": "metadata log {metadata_log}",
    "InvariantViolated": "{invariant}",
}


def family_of(kind: str) -> str:
    """Return the family of a kind: that of its module, or that of the faults; an unknown kind
    belongs to the run.
    """
    if kind in _FAULTS:
        return "faults"
    event = KINDS.get(kind)
    return _FAMILY_OF_MODULE[family(event.__module__)] if event else "run"


def is_bad_news(kind: str) -> bool:
    """Return whether a kind reports a failure."""
    return kind.endswith(_BAD_NEWS)


def label_of(kind: str) -> str:
    """Return the label beside a dot; names in braces stand for the event's fields."""
    return _LABELS.get(kind, kind)
