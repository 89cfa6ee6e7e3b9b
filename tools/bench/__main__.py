"""`make bench` runs all benchmarks, one after the other; `make bench ARGS=ids` runs one,
ARGS="failover --rounds 20" passes options.

python -m tools.bench [NAME ...] [OPTIONS OF A BENCHMARK]
names: codec import records frames copies start quorum_start ids failover writes partitions produce
       traffic latency producers leader_failover variants id_variants migration shrink idle bugs
       operator_log large_requests leases watch application fixture control snapshots
"""

import subprocess
import sys

BENCHES = {
    "codec": (
        "parse and build, compared with kio, kafka-python, interpreted construct and handwritten "
        "code"
    ),
    "import": "import time of the protocol package, and of the first use of an API",
    "records": "record batches: headers and single records, compared with kafka-python",
    "frames": "InitProducerId frames per second of one core, with a constant response",
    "copies": "number of memory copies of each record byte in a broker, and their cost",
    "start": "seconds until every broker responds, and memory of each node",
    "fixture": (
        "what a test waits for: start of a cluster, topic, first record, first group read, stop; "
        "with --from-nothing a new project until its first test is green"
    ),
    "quorum_start": (
        "start of 3 controllers and 3 brokers, and their memory, compared with Apache Kafka"
    ),
    "ids": "InitProducerId requests per second, compared with Apache Kafka",
    "failover": (
        "from kill -9 of the active controller to the next producer-id block, compared with "
        "Apache Kafka"
    ),
    "writes": (
        "committed metadata writes per second of a quorum of three, compared with Apache Kafka"
    ),
    "partitions": "100,000 partitions: creation, and start of nodes with them",
    "recovery": (
        "recovery of a log of 1 GiB with 100,000 producers, after a clean shutdown and after "
        "kill -9"
    ),
    "tiering": (
        "MB/s to and from remote storage, compared with the local log; start of a follower with "
        "100,000 producers"
    ),
    "pipeline": (
        "the data pipeline on a run of 1,000,000 events (--events N): ingest, invariants by "
        "Spark and DuckDB, report, peak memory"
    ),
    "audit": (
        "reading log directories of Apache Kafka (--gib N): headers, checksums, records, and the "
        "ratio to kafka-dump-log"
    ),
    "compaction": "MiB/s of log compaction, and its longest pause of the event loop",
    "produce": "MB/s of 1 KiB records by librdkafka, compared with Apache Kafka",
    "traffic": (
        "MB/s by librdkafka: produce and consume, 1 KiB and 100 bytes, one replica and three, "
        "compared with Apache Kafka and a sink"
    ),
    "latency": (
        "p50 and p99 of acks=all at 1,000 records per second, one replica and three, compared "
        "with Apache Kafka"
    ),
    "producers": (
        "memory of 100,000 producers in a partition's producer state, compared with Apache "
        "Kafka's heap"
    ),
    "leader_failover": (
        "from kill -9 of a partition leader to the next acknowledged record, compared with "
        "Apache Kafka"
    ),
    "application": (
        "CPU seconds of a seed of an aiokafka application in virtual time, and whether seeds "
        "repeat under other hash seeds"
    ),
    "variants": (
        "producer state of five batches or of the latest one (KIP-758): memory, responses, errors"
    ),
    "id_variants": (
        "variants of KIP-730's producer ids: crash loops, prefetch, lost responses, block sizes"
    ),
    "transactions": (
        "transactions per second and commit latency, by librdkafka, compared with Apache Kafka"
    ),
    "copying": (
        "MB/s of exactly-once consume-transform-produce, by librdkafka, compared with Apache Kafka"
    ),
    "tasks": (
        "cost of a producer per task compared with one per thread, at 10, 100 and 1,000 partitions"
    ),
    "fencing": (
        "KIP-447's claims on time and correctness: takeovers, zombie members, dropped "
        "conditions, old brokers"
    ),
    "kills": (
        "kill -9 of random nodes under librdkafka load: lost or duplicated records, partial "
        "transactions"
    ),
    "coordinator_failover": (
        "from kill -9 of a transaction coordinator to the next commit, compared with Apache Kafka"
    ),
    "leases": (
        "lease_pid: message size, collisions of random generations, snapshot size by partition "
        "count"
    ),
    "migration": (
        "ZooKeeper-to-KRaft migration: duration of each phase and producer stalls, compared with "
        "Apache Kafka"
    ),
    "shrink": "shrinking of failing runs with 40 faults: remaining faults, and CPU seconds",
    "proxy": (
        "cost of the proxy in front of the nodes: requests, and records by librdkafka, with and "
        "without it"
    ),
    "upstream": (
        "cost of `kraftsim proxy` in front of Apache Kafka: throughput by librdkafka, Java and a "
        "consumer, and microseconds added to a request"
    ),
    "control": (
        "HTTP control: cost of a start with it; with --hours 8, memory over 28,800 operations"
    ),
    "snapshots": (
        "what HTTP control reads of a cluster: a snapshot, metrics, and events per second of the "
        "live checks"
    ),
    "idle": "virtual seconds per CPU second, idle and under faults",
    "operator_log": "what the log lines for operators cost per event",
    "large_requests": (
        "requests of 10,000 and 20,000 entries, for each array of each API: CPU seconds, and the "
        "wait of other clients"
    ),
    "watch": (
        "`kraftsim watch`: seconds from a violation in an event log to its report, and events per "
        "second"
    ),
    "bugs": "seeds and CPU seconds until each historical bug is found, with 20 repetitions",
}


def main() -> int:
    """Run the chosen benchmarks, each in its own process."""
    given = sys.argv[1:]
    first_option = next(
        (number for number, word in enumerate(given) if word.startswith("-")), len(given)
    )
    chosen, options = given[:first_option] or list(BENCHES), given[first_option:]
    unknown = [name for name in chosen if name not in BENCHES]
    if unknown:
        print(f"unknown benchmark {unknown[0]} (available: {', '.join(BENCHES)})", file=sys.stderr)
        return 3
    worst = 0
    for name in chosen:
        print(f"\n== {name}: {BENCHES[name]}", file=sys.stderr, flush=True)
        worst = max(
            worst,
            subprocess.run(
                [sys.executable, "-m", f"tools.bench.bench_{name}", *options], check=False
            ).returncode,
        )
    return worst


if __name__ == "__main__":
    sys.exit(main())
