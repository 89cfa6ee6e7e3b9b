"""Descriptions of kraftsim's own settings, for the settings page.

Types and defaults are those of `NodeConfig`.
"""

from collections.abc import Mapping
from typing import Final

MEANINGS: Final[Mapping[str, str]] = {
    "kraftsim.bugs": "Historical bugs to inject into this node; `kraftsim list bugs`.",
    "kraftsim.client.telemetry": (
        "Whether the broker takes the metrics of clients, as Apache Kafka does with a reporter for "
        "them, and writes them as events."
    ),
    "kraftsim.cluster.id": "Cluster id with which an empty directory is formatted.",
    "kraftsim.events.dir": "Directory of the event log; empty: no event log.",
    "kraftsim.frame.events": "Whether each frame that is sent or received is an event.",
    "kraftsim.initial.controllers": (
        "First voters of a dynamic quorum, as the argument of `kafka-storage "
        "--initial-controllers`."
    ),
    "kraftsim.large.frame.bytes": (
        "Frames of this size and above are received into memory of their size, below it into the "
        "shared buffer."
    ),
    "kraftsim.node.name": (
        "Name of the node in events and log lines; empty: made from its roles and id."
    ),
    "kraftsim.offset.fencing": (
        "How transactional offset commits are fenced: a variant of KIP-447; empty: as released."
    ),
    "kraftsim.outgoing.host": (
        "Loopback address from which the node connects; the fault proxy knows the node by it."
    ),
    "kraftsim.producer.id.block.size": (
        "Producer ids in one block, with `kraftsim.producer.id.control` other than as-released."
    ),
    "kraftsim.producer.id.blocks": (
        "How a broker requests blocks: `shared-channel`, `own-channel`, `numbered`, "
        "`after-replay`, `own-disk`."
    ),
    "kraftsim.producer.id.blocks.per.second": (
        "Blocks that the controller allocates to one broker per second; 0: no limit."
    ),
    "kraftsim.producer.id.control": (
        "How the controller allocates blocks: `as-released`, `resizable`, `repeating`, `last-id`."
    ),
    "kraftsim.producer.ids": (
        "When a broker requests its next block: `as-released`, `ending`, `on-demand`, `eager`."
    ),
    "kraftsim.producer.snapshots": (
        "Which producer snapshots are kept: `as-released`, `every-segment`, `newest-two`, "
        "`replay-younger`."
    ),
    "kraftsim.producer.state": (
        "Producer state of a leader: `five-batches`, `latest-batch`, `latest-batch-46`, "
        "`latest-batch-announced`."
    ),
    "kraftsim.registration.wait.ms": (
        "How long a broker in ZooKeeper mode waits for the session of its former incarnation to "
        "end."
    ),
    "kraftsim.release": "Release of Apache Kafka that the node emulates; `kraftsim list releases`.",
    "kraftsim.run": "Name of the run in the event log.",
    "kraftsim.run.started.ns": (
        "Start of the run on the monotonic clock, in nanoseconds: the origin of `t_ns` in the "
        "event log."
    ),
    "kraftsim.seed": "Seed of ids and nonces; 0: the operating system's entropy. See below.",
    "kraftsim.small.segments": (
        "Accept values of log.segment.bytes and metadata.log.segment.bytes below the minimum of a "
        "release, for runs with many segments."
    ),
    "kraftsim.tiering.remedy": (
        "What a leader does if a segment to copy has no producer snapshot; empty: as released."
    ),
    "kraftsim.two.phase.commit": (
        "What brokers have of two-phase commit (KIP-939): `as-released`; `as-merged`, what 4.1 to "
        "4.4 have behind unstable.api.versions.enable; `keeping`, also transactions that are kept "
        "for the next producer."
    ),
    "kraftsim.upgrade.path": (
        "Releases that an upgrade scenario goes to, in order, separated by commas; empty: drawn "
        "from the seed."
    ),
    "kraftsim.unknown.producer": (
        "How a leader treats an unknown producer: `as-released`, `accepted`, "
        "`unknown-producer-id`, `out-of-order`, "
        "`out-of-order-in-new-logs` (KAFKA-15591, after 4.4)."
    ),
    "kraftsim.window.carrier": (
        "How a broker announces its window (KIP-758): `produce`, `api-versions`, "
        "`init-producer-id`."
    ),
}
SINCE: Final = "kraftsim 0.2.0"
