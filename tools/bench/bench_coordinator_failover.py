"""Measures the time from kill -9 of a transaction coordinator to the next commit of a librdkafka
producer; three brokers, three replicas.

    python -m tools.bench.bench_coordinator_failover [--rounds 3]

A producer commits small transactions one after the other. Their coordinator is killed; the result
is the longest time between two commits from then on. The broker session timeout is --session ms, by
default 2000. Each round has its own cluster.
"""

import argparse
import itertools
import sys
import threading
import time
from collections import defaultdict

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from kraftsim.conformance.peer import Peer
from protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tools.bench.bench_transactions import GIVE_UP_SECONDS, internal_topics
from tools.bench.clusters import Cluster, cluster
from tools.bench.result import report_cost
from tools.bench.subjects import APACHE_KAFKA, KRAFTSIM, subjects

REPLICAS = 3
TRANSACTIONAL_ID = "failover"
BEFORE_SECONDS = 2.0
AFTER_COMMITS = 20


class Committer(threading.Thread):
    """Commits one transaction after the other, retries failed ones, and records the time of each
    commit.
    """

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": TRANSACTIONAL_ID,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self.producer.init_transactions(GIVE_UP_SECONDS)
        self.commits: list[float] = []
        self.is_over = threading.Event()

    def run(self) -> None:
        """Commit until stopped."""
        while not self.is_over.is_set():
            self.producer.begin_transaction()
            self.producer.produce("failover", b"x", partition=0)
            try:
                self._commit()
            except confluent_kafka.KafkaException as trouble:
                if not trouble.args[0].txn_requires_abort():
                    raise
                self.producer.abort_transaction(GIVE_UP_SECONDS)

    def _commit(self) -> None:
        while True:
            try:
                self.producer.commit_transaction(GIVE_UP_SECONDS)
                self.commits.append(time.perf_counter())
                return
            except confluent_kafka.KafkaException as trouble:
                if not trouble.args[0].retriable():
                    raise


def coordinator_of(bootstrap: str) -> int:
    """Return the id of the broker that coordinates the transactions."""
    with Peer.at(bootstrap.split(",")[0]) as peer:
        return peer.ask(
            FindCoordinatorRequest(key=TRANSACTIONAL_ID, key_type=1), 3, FindCoordinatorResponse
        ).node_id


def fail_over(running: Cluster) -> float:
    """Return the longest time without a commit."""
    admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("failover", 1, REPLICAS)])["failover"].result(GIVE_UP_SECONDS)
    committer = Committer(running.bootstrap)
    committer.start()
    time.sleep(BEFORE_SECONDS)
    killed_at = time.perf_counter()
    running.kill(coordinator_of(running.bootstrap))
    while len([each for each in committer.commits if each > killed_at]) < AFTER_COMMITS:
        assert time.perf_counter() - killed_at < 2 * GIVE_UP_SECONDS, "transactions continue"
        assert committer.is_alive(), "the producer continues"
        time.sleep(0.02)
    committer.is_over.set()
    committer.join(GIVE_UP_SECONDS)
    return max(later - earlier for earlier, later in itertools.pairwise(committer.commits))


def main() -> int:
    """Measure both, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--session", type=int, default=2000, help="broker.session.timeout.ms of both"
    )
    parser.add_argument(
        "--subject", nargs="+", default=subjects(), choices=[APACHE_KAFKA, KRAFTSIM]
    )
    options = parser.parse_args()
    sessions = {
        "broker.session.timeout.ms": str(options.session),
        "broker.heartbeat.interval.ms": str(min(2000, options.session // 4)),
    }
    found: dict[str, list[float]] = defaultdict(list)
    for name in options.subject:
        for _ in range(options.rounds):
            with cluster(name, REPLICAS, {**internal_topics(REPLICAS), **sessions}) as running:
                found[name].append(fail_over(running))
                print(f"  {name:20s} {found[name][-1]:.2f} s", flush=True)
    report_cost(
        "coordinator_failover.next_commit",
        f"kill -9 of a transaction coordinator until the next commit, session of {options.session} "
        "ms",
        "s",
        found[KRAFTSIM],
        peer=APACHE_KAFKA,
        peer_values=found[APACHE_KAFKA],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
