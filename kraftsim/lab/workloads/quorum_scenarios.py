"""What scenarios about quorums have in common: short time-outs, and the invariants of the Raft
protocol that each run must exercise.
"""

from typing import Final

PROVEN: Final = (
    "one-leader-per-epoch",
    "one-vote-per-epoch",
    "metadata-log-matching",
    "high-watermark-monotonic",
    "high-watermark-flushed",
    "leader-completeness",
    "leader-elected-by-majority",
    "pre-vote-before-election",
    "high-watermark-monotonic-across-epochs",
    "stale-epochs-refused",
    "producer-id-blocks-disjoint",
    "producer-id-unique",
    "recovers-after-heal",
)
QUICK_SESSIONS: Final = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
QUICK_ELECTIONS: Final = {
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.election.backoff.max.ms": "300",
    "controller.quorum.fetch.timeout.ms": "800",
}
QUICKER_ELECTIONS: Final = {
    "controller.quorum.election.timeout.ms": "400",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.fetch.timeout.ms": "600",
}
SMALL_BLOCKS: Final = {
    "kraftsim.producer.id.control": "resizable",
    "kraftsim.producer.id.block.size": "10",
}
"""Small blocks, so that brokers allocate producer ids all the time."""
SETTINGS: Final = {
    **QUICK_SESSIONS,
    **QUICKER_ELECTIONS,
    "controller.quorum.election.backoff.max.ms": "400",
    "controller.socket.timeout.ms": "1500",
    **SMALL_BLOCKS,
}
"""Of the scenarios that exercise all of them."""
