"""`make bench`: every measurement, one after the other; `make bench ARGS=ids` runs one, ARGS="failover --rounds 20" tells it more.

python -m bench [NAME ...] [OPTIONS OF A BENCH]
names: codec import records frames copies start quorum_start ids failover writes partitions produce
       traffic latency producers leader_failover variants id_variants migration shrink idle bugs operator_log large_requests leases
"""

import subprocess
import sys

BENCHES = {
    "codec": "parse and build, against kio, kafka-python, interpreted construct and code written by hand",
    "import": "how long importing the wire takes, and the first use of an API",
    "records": "record batches: headers, and records one by one, against kafka-python",
    "frames": "InitProducerId frames per second of one core, with a constant answer",
    "copies": "copies of each record byte in a broker, counted, and what they cost",
    "start": "seconds until every broker answers, and resident memory of each node",
    "quorum_start": "3 controllers and 3 brokers until every broker answers, and their memory, beside Apache Kafka",
    "ids": "InitProducerId per second, beside Apache Kafka",
    "failover": "from kill -9 of the active controller to the next block of producer ids, beside Apache Kafka",
    "writes": "metadata writes per second that a quorum of three commits, beside Apache Kafka",
    "partitions": "100,000 partitions in metadata: creating them, and starting with them",
    "recovery": "opening a log of 1 GiB with 100,000 producers: after a clean stop, and after kill -9",
    "tiering": "MB/s to a remote store and back, beside the local log; a follower that begins with 100,000 producers",
    "compaction": "MiB/s at which a log is compacted, and how long others wait for a turn meanwhile",
    "produce": "MB/s of 1 KiB records by librdkafka, beside Apache Kafka",
    "traffic": "MB/s by librdkafka: produce and consume, 1 KiB and 100 bytes, one replica and three, beside Apache Kafka and a sink",
    "latency": "p50 and p99 of acks=all at 1,000 records a second, one replica and three, beside Apache Kafka",
    "producers": "memory of 100,000 producer ids in the state of a partition, beside the heap of Apache Kafka",
    "leader_failover": "from kill -9 of a partition's leader to the next acknowledged record, beside Apache Kafka",
    "variants": "five batches of each producer, or the latest one (KIP-758): memory, answers, harm",
    "id_variants": "producer ids as KIP-730 has them, and as it might: crash loops, prefetch, lost answers, sizes",
    "transactions": "transactions per second and the latency of commits, by librdkafka, beside Apache Kafka",
    "copying": "MB/s of consume-transform-produce, exactly once, by librdkafka, beside Apache Kafka",
    "tasks": "what a producer per task costs beside a producer per thread, at 10, 100 and 1,000 partitions",
    "fencing": "what KIP-447 says of time and harm: takeovers, members that wake up too late, conditions that are dropped, old brokers",
    "kills": "kill -9 of random nodes under librdkafka load: records lost or doubled, transactions in part",
    "coordinator_failover": "from kill -9 of a transaction coordinator to the next commit, beside Apache Kafka",
    "leases": "lease_pid in numbers: bytes of a message, drawn generations that meet an older one, snapshots by partition count",
    "migration": "from ZooKeeper to KRaft: seconds of each phase, and how long producers wait, beside Apache Kafka's own migration",
    "shrink": "from 40 faults to what a failure needs: faults left, and CPU seconds",
    "proxy": "what the proxy in front of the nodes costs: requests, and records by librdkafka, with and without it",
    "idle": "virtual seconds per CPU second, idle and under faults",
    "operator_log": "what the log lines for operators cost per event",
    "large_requests": "requests of 10,000 and 20,000 entries, each array of each API: CPU seconds, and how long others wait",
    "bugs": "seeds and CPU seconds until each historical bug is found, 20 times over",
}


def main() -> int:
    """Run the chosen benches, each in a process of its own."""
    given = sys.argv[1:]
    first_option = next((number for number, word in enumerate(given) if word.startswith("-")), len(given))
    chosen, options = given[:first_option] or list(BENCHES), given[first_option:]
    unknown = [name for name in chosen if name not in BENCHES]
    if unknown:
        print(f"no bench is called {unknown[0]} (there are: {', '.join(BENCHES)})", file=sys.stderr)
        return 3
    worst = 0
    for name in chosen:
        print(f"\n== {name}: {BENCHES[name]}", flush=True)
        worst = max(worst, subprocess.run([sys.executable, "-m", f"bench.bench_{name}", *options], check=False).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
