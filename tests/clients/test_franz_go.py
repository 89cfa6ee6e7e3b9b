"""franz-go: idempotent producers and consumers by partition, from a small Go program that is built
here.
"""

import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from kraftsim.cluster.processes import ProcessCluster
from protocol.records.record import Compression
from tests.clients.disks import batches_on_disk
from tests.cluster.running import create_topic, logged_events, restart_and_wait

pytestmark = pytest.mark.interop
PARTITIONS, PRODUCERS, EACH = 3, 5, 2000


def test_franz_go_writes_and_reads_everything_once_while_a_broker_is_killed(
    franz_go: Path, cluster: ProcessCluster, topic: str
) -> None:
    """Five idempotent producers, each with a different compression; one broker killed with SIGKILL
    and restarted.
    """
    create_topic(cluster, topic, PARTITIONS)
    words = [
        str(franz_go),
        "write",
        cluster.bootstrap,
        topic,
        str(PARTITIONS),
        str(PRODUCERS),
        str(EACH),
    ]
    writing = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        give_up_at = time.monotonic() + 30
        while (
            sum(
                event["topic"] == topic
                for event in logged_events(cluster.directory, "BatchAppended", "broker-1")
            )
            < 20
        ):
            assert time.monotonic() < give_up_at and writing.poll() is None
            time.sleep(0.02)
        cluster.kill("broker-1")
        assert writing.poll() is None, "the kill happens while records are produced"
        restart_and_wait(cluster, "broker-1")
        assert writing.communicate(timeout=60) == (f"written {PRODUCERS * EACH}\n", "")
    finally:
        writing.kill()
    words = [
        str(franz_go),
        "read",
        cluster.bootstrap,
        topic,
        str(PARTITIONS),
        str(PRODUCERS * EACH),
    ]
    read = subprocess.run(words, capture_output=True, text=True, timeout=90, check=False)
    assert read.returncode == 0, read.stderr
    lines = [line.split() for line in read.stdout.splitlines()]
    written = Counter((str(name), str(count)) for name in range(PRODUCERS) for count in range(EACH))
    assert Counter((key, value) for _, _, key, value in lines) == written
    for partition in range(PARTITIONS):
        offsets = [int(offset) for where, offset, _, _ in lines if int(where) == partition]
        assert offsets == list(range(len(offsets)))
    kept = {
        Compression(batch.compression)
        for partition in range(PARTITIONS)
        for batch in batches_on_disk(cluster, topic, partition)
    }
    assert kept == set(Compression)
