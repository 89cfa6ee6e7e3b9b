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
UNLISTED: Final = (
    "no node lists the store: as in Apache Kafka, the topic of remote log metadata says which "
    "segments there are"
)
FEW_SCENARIOS: Final = (
    "few scenarios can have it; drawn there four times as often since the record was made"
)
SCARCE_API: Final = (
    "few scenarios use it, and the record has at most three faults of it; drawn three times "
    "as often since"
)
NOT_SENT: Final = (
    "fault spaces declared it where nobody sent it; since the record was made it is sent, or "
    "declared only where it is"
)
NO_LAG: Final = (
    "no controller fell behind a snapshot in the runs of the record that wait for its request"
)
RARE_ANSWER: Final = (
    "one error among several of its API; the record has at most five faults with it, and their "
    "requests were over or never came"
)
COMBINED: Final = "one scenario has combined nodes, whose votes have names of brokers"

NEVER_DRAWN: Final[Mapping[str, str]] = {
    "snapshot-of-another-segment": UNNOTICED,
    "stale-store-listing": UNLISTED,
}
"""Kinds of faults that no schedule of any scenario has."""
NEVER_EFFECTIVE: Final[Mapping[str, str]] = {
    **NEVER_DRAWN,
    **dict.fromkeys(
        ("lying-flush", "misdirected-write", "old-disk-image", "lost-object", "other-release"),
        FEW_SCENARIOS,
    ),
    **dict.fromkeys(
        (
            "AlterClientQuotas of clients",
            "AlterPartitionReassignments of clients",
            "CreateTopics of clients",
            "DeleteAcls of clients",
            "DescribeConfigs of clients",
            "LeaderAndIsr of controllers",
        ),
        SCARCE_API,
    ),
    **dict.fromkeys(
        (
            "ElectLeaders of clients",
            "OffsetForLeaderEpoch of brokers",
            "StopReplica of brokers",
            "StopReplica of controllers",
        ),
        NOT_SENT,
    ),
    **dict.fromkeys(("FetchSnapshot of controllers", "error=POSITION_OUT_OF_RANGE"), NO_LAG),
    "Vote of brokers": COMBINED,
    **dict.fromkeys(
        (
            "error=BROKER_ID_NOT_REGISTERED",
            "error=CONCURRENT_TRANSACTIONS",
            "error=COORDINATOR_NOT_AVAILABLE",
            "error=LEADER_NOT_AVAILABLE done",
            "error=NOT_LEADER_OR_FOLLOWER done",
            "error=OPERATION_NOT_ATTEMPTED",
            "error=STALE_CONTROLLER_EPOCH",
            "error=STALE_CONTROLLER_EPOCH done",
            "error=UNKNOWN_MEMBER_ID",
            "error=UNKNOWN_TOPIC_ID",
        ),
        RARE_ANSWER,
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
