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
FEW_SEEDS: Final = "drawn; no run of the few seeds of the record had its effect"
SELDOM_SENT: Final = (
    "sent in the beginning, or after other faults: no random fault of the few seeds met one, those "
    "of tests that wait for it do"
)

NEVER_DRAWN: Final[Mapping[str, str]] = {"snapshot-of-another-segment": UNNOTICED}
"""Kinds of faults that no schedule of any scenario has."""
NEVER_EFFECTIVE: Final[Mapping[str, str]] = {
    **NEVER_DRAWN,
    **dict.fromkeys(("bit-rot", "lost-disk", "misdirected-write", "old-disk-image"), FEW_LOSSES),
    **dict.fromkeys(
        ("lying-flush", "old-epoch-answer", "overtaken-request", "stale-metadata"), FEW_SEEDS
    ),
    **dict.fromkeys(
        (
            "AddOffsetsToTxn of clients",
            "EndTxn of clients",
            "Heartbeat of clients",
            "error=COORDINATOR_LOAD_IN_PROGRESS",
            "error=NOT_CONTROLLER",
            "error=NOT_CONTROLLER done",
            "error=NOT_LEADER_OR_FOLLOWER",
            "error=UNKNOWN_LEADER_EPOCH",
        ),
        FEW_SEEDS,
    ),
    **dict.fromkeys(
        (
            "ApiVersions of brokers",
            "BeginQuorumEpoch of controllers",
            "ControlledShutdown of brokers",
            "EndQuorumEpoch of controllers",
            "Envelope of brokers",
            "FetchSnapshot of brokers",
            "FetchSnapshot of controllers",
            "LeaderAndIsr of brokers",
            "OffsetForLeaderEpoch of brokers",
            "StopReplica of brokers",
            "UpdateMetadata of brokers",
            "error=STALE_CONTROLLER_EPOCH",
        ),
        SELDOM_SENT,
    ),
}
"""Kinds, APIs (`EndTxn of clients`) and errors (`error=NAME`) without effect in the kept record."""
NEVER_ASKED: Final[Mapping[str, str]] = {}
"""APIs that nodes or clients exchange, and no fault space declares."""
