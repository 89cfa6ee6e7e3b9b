"""What a campaign never exercises, and why that is accepted.

tests/simulate/test_search_coverage.py fails for everything else, and for a reason that no longer
holds.
"""

from collections.abc import Mapping
from typing import Final

UNNOTICED: Final = (
    "the objects of a segment belong together by their names only: a broker of Apache Kafka has "
    "nothing to notice it by, so that no scenario survives it"
)
FEW_LOSSES: Final = "one run in six may lose flushed data, in one scenario of the record"
FEW_SEEDS: Final = "drawn; no run of the seeds of the record had its effect"

NEVER_DRAWN: Final[Mapping[str, str]] = {"snapshot-of-another-segment": UNNOTICED}
"""Kinds of faults that no schedule of any scenario has."""
NEVER_EFFECTIVE: Final[Mapping[str, str]] = {
    **NEVER_DRAWN,
    **dict.fromkeys(("lying-flush", "misdirected-write", "old-disk-image"), FEW_LOSSES),
    **dict.fromkeys(
        (
            "AlterClientQuotas of clients",
            "AlterPartitionReassignments of clients",
            "CreateTopics of clients",
            "DeleteAcls of clients",
            "DescribeConfigs of clients",
            "ElectLeaders of clients",
            "FetchSnapshot of controllers",
            "LeaderAndIsr of controllers",
            "OffsetForLeaderEpoch of brokers",
            "StopReplica of brokers",
            "StopReplica of controllers",
            "Vote of brokers",
            "error=BROKER_ID_NOT_REGISTERED",
            "error=CONCURRENT_TRANSACTIONS",
            "error=COORDINATOR_NOT_AVAILABLE",
            "error=LEADER_NOT_AVAILABLE done",
            "error=NOT_LEADER_OR_FOLLOWER done",
            "error=OPERATION_NOT_ATTEMPTED",
            "error=POSITION_OUT_OF_RANGE",
            "error=STALE_CONTROLLER_EPOCH",
            "error=STALE_CONTROLLER_EPOCH done",
            "error=UNKNOWN_MEMBER_ID",
            "error=UNKNOWN_TOPIC_ID",
            "lost-object",
            "other-release",
            "stale-store-listing",
        ),
        FEW_SEEDS,
    ),
}
"""Kinds, APIs (`EndTxn of clients`) and errors (`error=NAME`) without effect in the kept record."""
NEVER_ASKED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "BeginQuorumEpoch brokers",
            "ControllerRegistration brokers",
            "EndQuorumEpoch brokers",
            "Vote brokers",
        ),
        "combined nodes have names of brokers: fault spaces declare it for controllers",
    ),
    **dict.fromkeys(
        ("AllocateProducerIds clients", "BrokerHeartbeat clients", "BrokerRegistration clients"),
        "of a second machine with the id of a broker, which is no host of the fault space",
    ),
    **dict.fromkeys(
        ("ListOffsets brokers", "Produce brokers"),
        "of the topic of remote log metadata; faults of links and of brokers meet them",
    ),
    "AssignReplicasToDirs brokers": "at most once for a partition that moves between directories",
    "CreateTopics brokers": "of internal topics, once; brokers ask again for each FindCoordinator",
    "ListPartitionReassignments clients": "a question of the harness, which repeats it",
}
"""APIs that nodes or clients exchange, and no fault space declares."""
