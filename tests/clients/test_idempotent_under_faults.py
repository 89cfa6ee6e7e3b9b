"""kafka-python and franz-go write idempotently to three replicas while leaders are killed and
brokers restarted: nothing is lost or duplicated.

Other clients have their own files; test_librdkafka_under_faults.py has more faults.
"""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.clients.transform_app.clusters import (
    PARTITIONS,
    Brokers,
    create_topics,
    wait_until_in_sync,
)
from tests.clients.transform_app.readers import ByLibrdkafka

pytestmark = pytest.mark.interop
WRITERS = 3
EACH = {"kafka-python": 6000, "franz-go": 24_000}
"""Records of each writer: enough for about ten seconds of production."""
SECONDS = 60.0
Command = Callable[[Brokers, str], Sequence[str]]
BY_KAFKA_PYTHON = f"""
import sys, time, kafka
producers = [
    kafka.KafkaProducer(
        bootstrap_servers=sys.argv[1].split(","), enable_idempotence=True,
        retry_backoff_ms=50, reconnect_backoff_ms=50, linger_ms=2,
        metadata_max_age_ms=2000, delivery_timeout_ms=50_000,
    )
    for _ in range({WRITERS})
]
sent = []
for count in range({EACH["kafka-python"]}):
    for name, producer in enumerate(producers):
        value, key = b"%d" % count, b"%d.%d" % (name, count)
        sent.append(producer.send(sys.argv[2], value, key, partition=count % {PARTITIONS}))
    if count % 20 == 0:
        time.sleep(0.02)
for each in sent:
    each.get({SECONDS})
"""


@pytest.fixture
def writing(request: pytest.FixtureRequest, client: str) -> Command:
    """The command that writes every record."""
    if client == "kafka-python":
        return lambda brokers, topic: [
            sys.executable,
            "-c",
            BY_KAFKA_PYTHON,
            brokers.bootstrap,
            topic,
        ]
    program: Path = request.getfixturevalue("franz_go")
    return lambda brokers, topic: [
        str(program),
        "write-keyed",
        brokers.bootstrap,
        topic,
        str(PARTITIONS),
        str(WRITERS),
        str(EACH[client]),
    ]


@pytest.mark.parametrize("client", ["kafka-python", "franz-go"])
def test_every_record_is_in_the_log_once(
    three_brokers: Brokers, client: str, writing: Command
) -> None:
    topic, each = f"idempotent-{client}", EACH[client]
    create_topics(three_brokers.bootstrap, topic)
    reader = ByLibrdkafka(three_brokers.bootstrap, topic)
    found: Counter[bytes] = Counter()

    def read_until(count: int) -> None:
        give_up_at = time.monotonic() + SECONDS
        while found.total() < count:
            assert time.monotonic() < give_up_at, f"{found.total()} records, {count} are wanted"
            found.update(key for _, _, key in reader.read(0.2))

    with subprocess.Popen(
        writing(three_brokers, topic), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as writer:
        try:
            for number, broker_id in enumerate(three_brokers.killable[:2], 1):
                read_until(number * WRITERS * each // 8)
                assert writer.poll() is None, "the kill happens while records are produced"
                three_brokers.kill(broker_id)
                time.sleep(0.5)
                three_brokers.restart(broker_id)
                wait_until_in_sync(three_brokers.bootstrap, topic)
            _, said = writer.communicate(timeout=SECONDS)
        finally:
            writer.kill()
    assert writer.returncode == 0, said[-2000:]
    read_until(WRITERS * each)
    found.update(key for _, _, key in reader.read(0.5))
    reader.close()
    assert found == Counter(
        b"%d.%d" % (name, count) for name in range(WRITERS) for count in range(each)
    )
