"""What stories about the manners of a quorum have in common: how quick its time-outs are, and what each run of them must prove."""

from typing import Final

PROVEN: Final = (
    "one-leader-per-epoch",
    "one-vote-per-epoch",
    "metadata-log-matching",
    "high-watermark-monotonic",
    "high-watermark-flushed",
    "leader-completeness",
    "leaders-have-a-majority",
    "voters-ask-first",
    "high-watermark-told-in-order",
    "past-epochs-refused",
    "producer-id-blocks-disjoint",
    "producer-id-unique",
    "settles-after-heal",
)
SETTINGS: Final = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "400",
    "controller.quorum.election.backoff.max.ms": "400",
    "controller.quorum.fetch.timeout.ms": "600",
    "controller.socket.timeout.ms": "1500",
    "kraftsim.producer.id.control": "resizable",
    "kraftsim.producer.id.block.size": "10",
}
