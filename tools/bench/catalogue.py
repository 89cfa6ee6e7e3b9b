"""All benches: what each measures, how long it may take, what the quick set and a comparison run of
it, and whether it reports figures or only prints text.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

MINUTE: Final = 60


class Java(Enum):
    """What a bench does with Apache Kafka, which needs Java and Maven."""

    NOT_USED = "not used"
    PEER = "peer"
    """Measured beside kraftsim, and left out where it is not installed."""
    NEEDED = "needed"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One bench: the module `bench_NAME`.

    `quick`, `pair`: the options in the quick set and in one half of a pair; None: not in it.
    `limit_s`: a run that takes longer is ended. `prints_only`: why it has no figures.
    """

    about: str
    limit_s: float = 10 * MINUTE
    java: Java = Java.NOT_USED
    quick: Sequence[str] | None = None
    pair: Sequence[str] | None = None
    prints_only: str = ""

    def missing(self) -> str:
        """Return why it cannot run on this machine; '' if it can."""
        if self.java is Java.NEEDED and not has_java():
            return "needs Java with Maven"
        return ""


def has_java() -> bool:
    """Return whether Apache Kafka can run here."""
    return bool(shutil.which("java") and shutil.which("mvn"))


BEHAVIOUR: Final = "prints tables of behaviour, and has no figures of speed"
BENCHES: Final[Mapping[str, Bench]] = {
    "codec": Bench(
        about="parse and build, compared with kio, kafka-python, interpreted construct and "
        "handwritten code",
        quick=("--runs", "1", "--rounds", "3"),
        pair=("--runs", "1", "--rounds", "2"),
    ),
    "import": Bench(
        about="import time of the protocol package, and of the first use of an API",
        quick=("--rounds", "5"),
        pair=("--rounds", "3"),
    ),
    "commands": Bench(
        about="time of short commands: --help, version, and list of each kind",
        quick=("--rounds", "4"),
        pair=("--rounds", "3"),
    ),
    "records": Bench(
        about="record batches: headers and single records, compared with kafka-python",
        quick=("--rounds", "5"),
        pair=("--rounds", "3"),
    ),
    "frames": Bench(
        about="InitProducerId frames per second of one core, with a constant response",
        quick=("--seconds", "1", "--rounds", "3"),
        pair=("--seconds", "0.7", "--rounds", "1"),
    ),
    "copies": Bench(
        about="number of memory copies of each record byte in a broker, and their cost",
    ),
    "start": Bench(
        about="seconds until every broker responds, and resident memory of each node",
        quick=("--rounds", "3"),
        pair=("--rounds", "1"),
    ),
    "fixture": Bench(
        about="what a test waits for: start of a cluster, topic, first record, first group read, "
        "stop; with --from-nothing a new project until its first test is green",
        quick=("--rounds", "3"),
        pair=("--rounds", "3"),
    ),
    "quorum_start": Bench(
        about="start of 3 controllers and 3 brokers, and their memory, compared with Apache Kafka",
        java=Java.PEER,
        quick=("--rounds", "2", "--apache-rounds", "1"),
        pair=("--rounds", "1", "--apache-rounds", "0"),
    ),
    "ids": Bench(
        about="InitProducerId requests per second, compared with Apache Kafka",
        java=Java.PEER,
        quick=("--seconds", "1", "--rounds", "3"),
        pair=("--seconds", "1", "--rounds", "1"),
    ),
    "failover": Bench(
        about="from kill -9 of the active controller to the next producer-id block, compared with "
        "Apache Kafka",
        java=Java.PEER,
        limit_s=20 * MINUTE,
    ),
    "writes": Bench(
        about="committed metadata writes per second of a quorum of three, compared with Apache "
        "Kafka",
        java=Java.PEER,
        pair=("--seconds", "1", "--rounds", "1"),
    ),
    "partitions": Bench(about="100,000 partitions: creation, and start of nodes with them"),
    "recovery": Bench(
        about="recovery of a log of 1 GiB with 100,000 producers, after a clean shutdown and after "
        "kill -9",
        pair=("--mebibytes", "64", "--producers", "10000", "--rounds", "1"),
    ),
    "tiering": Bench(
        about="MB/s to and from remote storage, compared with the local log; start of a follower "
        "with 100,000 producers",
    ),
    "pipeline": Bench(
        about="the data pipeline on a run of 1,000,000 events (--events N): ingest, invariants by "
        "Spark and DuckDB, report, peak memory",
        limit_s=20 * MINUTE,
    ),
    "audit": Bench(
        about="reading log directories of Apache Kafka (--gib N): headers, checksums, records, and "
        "the ratio to kafka-dump-log",
        java=Java.NEEDED,
        limit_s=20 * MINUTE,
    ),
    "compaction": Bench(
        about="MiB/s of log compaction, and its longest pause of the event loop",
    ),
    "produce": Bench(
        about="MB/s of 1 KiB records by librdkafka, compared with Apache Kafka",
        java=Java.PEER,
        quick=("--records", "100000", "--rounds", "2"),
        pair=("--records", "100000", "--rounds", "1"),
    ),
    "traffic": Bench(
        about="MB/s by librdkafka: produce and consume, 1 KiB and 100 bytes, one replica and "
        "three, compared with Apache Kafka and a sink",
        java=Java.PEER,
        quick=("--seconds", "0.7", "--rounds", "2"),
        pair=("--seconds", "0.7", "--rounds", "1", "--replicas", "1", "--only", "kraftsim"),
    ),
    "share": Bench(
        about="records per second of a share group by librdkafka, 100 bytes and 1 KiB, one "
        "partition and four, compared with Apache Kafka 4.4",
        java=Java.PEER,
        quick=("--records", "100000", "--rounds", "2", "--sizes", "100"),
        pair=("--records", "100000", "--rounds", "1", "--sizes", "100", "--only", "kraftsim"),
    ),
    "latency": Bench(
        about="p50 and p99 of acks=all at 1,000 records per second, one replica and three, "
        "compared with Apache Kafka",
        java=Java.PEER,
        quick=("--seconds", "3"),
    ),
    "producers": Bench(
        about="memory of 100,000 producers in a partition's producer state, compared with Apache "
        "Kafka's heap",
        java=Java.PEER,
    ),
    "leader_failover": Bench(
        about="from kill -9 of a partition leader to the next acknowledged record, compared with "
        "Apache Kafka",
        java=Java.PEER,
    ),
    "application": Bench(
        about="CPU seconds of a seed of an aiokafka application in virtual time, and whether seeds "
        "repeat under other hash seeds",
    ),
    "variants": Bench(
        about="producer state of five batches or of the latest one (KIP-758): memory, responses, "
        "errors",
        prints_only=BEHAVIOUR,
    ),
    "id_variants": Bench(
        about="variants of KIP-730's producer ids: crash loops, prefetch, lost responses, block "
        "sizes",
        prints_only=BEHAVIOUR,
    ),
    "transactions": Bench(
        about="transactions per second and commit latency, by librdkafka, compared with Apache "
        "Kafka",
        java=Java.PEER,
        quick=("--seconds", "1", "--replicas", "1"),
        pair=("--seconds", "1", "--replicas", "1", "--subject", "kraftsim"),
    ),
    "copying": Bench(
        about="MB/s of exactly-once consume-transform-produce, by librdkafka, compared with Apache "
        "Kafka",
        java=Java.PEER,
    ),
    "tasks": Bench(
        about="cost of a producer per task compared with one per thread, at 10, 100 and 1,000 "
        "partitions",
        prints_only="its figures are in docs/producer-per-task.json",
    ),
    "fencing": Bench(
        about="KIP-447's claims on time and correctness: takeovers, zombie members, dropped "
        "conditions, old brokers",
        prints_only=BEHAVIOUR,
    ),
    "kills": Bench(
        about="kill -9 of random nodes under librdkafka load: lost or duplicated records, partial "
        "transactions",
        prints_only=BEHAVIOUR,
    ),
    "coordinator_failover": Bench(
        about="from kill -9 of a transaction coordinator to the next commit, compared with Apache "
        "Kafka",
        java=Java.PEER,
    ),
    "leases": Bench(
        about="lease_pid: message size, collisions of random generations, snapshot size by "
        "partition count",
        prints_only=BEHAVIOUR,
    ),
    "migration": Bench(
        about="ZooKeeper-to-KRaft migration: duration of each phase and producer stalls, compared "
        "with Apache Kafka",
        java=Java.PEER,
        limit_s=20 * MINUTE,
    ),
    "shrink": Bench(
        about="shrinking of failing runs with 40 faults: remaining faults, and CPU seconds",
    ),
    "proxy": Bench(
        about="cost of the proxy in front of the nodes: requests, and records by librdkafka, with "
        "and without it",
    ),
    "upstream": Bench(
        about="cost of `kraftsim proxy` in front of Apache Kafka: throughput by librdkafka, Java "
        "and a consumer, and microseconds added to a request",
        java=Java.NEEDED,
    ),
    "control": Bench(
        about="HTTP control: cost of a start with it; with --hours 8, memory over 28,800 "
        "operations",
    ),
    "snapshots": Bench(
        about="what HTTP control reads of a cluster: a snapshot, metrics, and events per second of "
        "the live checks",
    ),
    "idle": Bench(
        about="virtual seconds per CPU second, idle and under faults",
        limit_s=20 * MINUTE,
        quick=("--seconds", "120", "--rounds", "2", "--seeds", "3", "--hour", "0"),
        pair=("--seconds", "60", "--rounds", "1", "--seeds", "2", "--hour", "0"),
    ),
    "operator_log": Bench(about="what the log lines for operators cost per event"),
    "large_requests": Bench(
        about="requests of 10,000 and 20,000 entries, for each array of each API: CPU seconds, and "
        "the wait of other clients",
        limit_s=20 * MINUTE,
    ),
    "watch": Bench(
        about="`kraftsim watch`: seconds from a violation in an event log to its report, and "
        "events per second",
    ),
    "bugs": Bench(
        about="seeds and CPU seconds until each historical bug is found, with 20 repetitions",
        prints_only="its figures are in docs/bugs.json: hours of CPU time",
    ),
}
