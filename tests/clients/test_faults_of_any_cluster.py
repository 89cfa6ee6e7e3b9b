"""Every primitive of KAFKA-21074 through the proxy: errors, disconnects, delays and black holes,
once, on the nth call, so many times, and with a probability; with the clients of three libraries,
on two releases of Apache Kafka and on kraftsim.
"""

import asyncio
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka.admin import AdminClient, NewTopic

from kraftsim import Cluster
from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE
from tests.apache_kafka.harness import ApacheKafka, java_command
from tests.clients.proxied_loads import (
    PATIENT_SECONDS,
    AiokafkaLoad,
    JavaLoad,
    LibrdkafkaLoad,
    Load,
    ProxyThread,
    java_release,
    wait_until,
)

pytestmark = pytest.mark.interop

KRAFTSIM = "kraftsim"
UPSTREAMS = (DEFAULT_RELEASE, NEWEST_RELEASE, KRAFTSIM)
LIBRARIES = ("java", "librdkafka", "aiokafka")
TOPIC = "load"
GOES_ON = 10
"""So many more acknowledgements show that a client has got over a fault."""
SHARE, LEAST_MATCHED, FEWEST, MOST = 0.3, 40, 0.1, 0.6
DELAY_MS, BLACK_HOLE_MS = 400, 1500
ERROR = "error=NOT_ENOUGH_REPLICAS"
ACTIONS = {
    "injectError": ERROR,
    "disconnectOn": "disconnect=request",
    "delayOn": f"delay=request delay_ms={DELAY_MS}",
}
WHEN = {"once": ("once", 1), "onCall": ("nth=5 once", 1), "times": ("times=3", 3)}
"""The option, and how often the fault takes effect."""


@contextmanager
def running(upstream: str) -> Iterator[str]:
    """Run a cluster; yield its bootstrap servers."""
    if upstream == KRAFTSIM:
        with Cluster(brokers=2) as cluster:
            yield cluster.bootstrap
    else:
        with ApacheKafka(upstream) as kafka:
            yield kafka.bootstrap


@pytest.fixture(scope="module", params=UPSTREAMS)
def through(request: pytest.FixtureRequest) -> Iterator[tuple[str, ProxyThread]]:
    """A cluster, and the proxy in front of it."""
    with running(request.param) as bootstrap:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(PATIENT_SECONDS)
        with ProxyThread(bootstrap) as proxy:
            yield request.param, proxy


@pytest.fixture(scope="module", params=LIBRARIES)
def load(
    request: pytest.FixtureRequest,
    through: tuple[str, ProxyThread],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Load]:
    """A producer that sends all the time."""
    upstream, proxy = through
    found: Load
    match request.param:
        case "java":
            found = JavaLoad(proxy.bootstrap, TOPIC, upstream, tmp_path_factory.mktemp("java-load"))
        case "librdkafka":
            found = LibrdkafkaLoad(proxy.bootstrap, TOPIC)
        case _:
            found = AiokafkaLoad(proxy.bootstrap, TOPIC)
    wait_until(lambda: found.acknowledged >= GOES_ON, f"{request.param} does not begin")
    yield found
    found.stop()


@pytest.fixture
def proxy(through: tuple[str, ProxyThread], load: Load) -> Iterator[ProxyThread]:
    """The proxy, with a load that has no errors and goes on."""
    yield through[1]
    before = load.acknowledged
    wait_until(lambda: load.acknowledged >= before + GOES_ON, "the producer does not go on")
    assert load.failed == [], "all of these faults are such as clients get over"


def longest_pause(load: Load, seconds: float) -> float:
    """Watch for so long; return the longest time without an acknowledgement."""
    began = last = time.monotonic()
    seen, longest = load.acknowledged, 0.0
    while (now := time.monotonic()) < began + seconds:
        if load.acknowledged != seen:
            seen, last = load.acknowledged, now
        longest = max(longest, now - last)
        time.sleep(0.005)
    return longest


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("when", WHEN)
def test_fault_takes_effect_so_often(
    action: str, when: str, load: Load, proxy: ProxyThread
) -> None:
    """Once, on the fifth call, three times: then it is over."""
    option, effects = WHEN[when]
    number = proxy.add(f"Produce {ACTIONS[action]} client_id={load.client_id} {option}")
    wait_until(lambda: proxy.status(number).effects == effects, f"{action} {when}")
    status = proxy.status(number)
    assert status.is_over and {hit.client_id for hit in status.recent_hits} == {load.client_id}
    assert status.matched == (5 if when == "onCall" else effects)


@pytest.mark.parametrize("action", ACTIONS)
def test_fault_with_a_probability(action: str, load: Load, proxy: ProxyThread) -> None:
    """Of the requests that match a share gets it, and not the others."""
    short = ACTIONS[action].replace(str(DELAY_MS), "30")
    number = proxy.add(f"Produce {short} client_id={load.client_id} share={SHARE} times=all")
    wait_until(lambda: proxy.status(number).matched >= LEAST_MATCHED, action)
    proxy.end(number)
    status = proxy.status(number)
    assert FEWEST < status.effects / status.matched < MOST, status


@pytest.mark.parametrize("what", ["request", "reply"])
def test_delay_is_as_long_as_it_says(what: str, load: Load, proxy: ProxyThread) -> None:
    number = proxy.add(f"Produce delay={what} delay_ms={DELAY_MS} client_id={load.client_id} once")
    assert longest_pause(load, 2 * DELAY_MS / 1000) >= 0.9 * DELAY_MS / 1000
    assert proxy.status(number).effects == 1


def test_black_hole_for_a_client(load: Load, proxy: ProxyThread) -> None:
    """It gets nothing while it lasts; another client does, and so does it afterwards."""
    other = LibrdkafkaLoad(proxy.bootstrap, TOPIC, "other")
    wait_until(lambda: other.acknowledged > 0, "the other client does not begin")
    before = other.acknowledged
    number = proxy.add(f"* blackhole client_id={load.client_id} duration_ms={BLACK_HOLE_MS}")
    assert longest_pause(load, BLACK_HOLE_MS / 1000) >= 0.5 * BLACK_HOLE_MS / 1000
    assert other.acknowledged > before, "the other client is caught, too"
    wait_until(lambda: proxy.status(number).is_over, "it does not end")
    assert proxy.status(number).effects > 0
    other.stop()


@pytest.mark.parametrize("when", ["once", "onCall"])
def test_black_hole_from_a_call_on(when: str, load: Load, proxy: ProxyThread) -> None:
    """From the first or the fifth Produce on everything of the client is lost."""
    option, _ = WHEN[when]
    number = proxy.add(
        f"Produce blackhole client_id={load.client_id} {option} duration_ms={BLACK_HOLE_MS}"
    )
    wait_until(lambda: proxy.status(number).effects > 0, "it does not begin")
    assert longest_pause(load, BLACK_HOLE_MS / 1000) >= 0.5 * BLACK_HOLE_MS / 1000
    wait_until(lambda: proxy.status(number).is_over, "it does not end")


# --------------------------------------------------------------------------------------------------
# Transactions: the errors that every client meets and no test of its own has


@pytest.mark.parametrize("library", LIBRARIES)
def test_commit_gets_over_concurrent_transactions(
    library: str, through: tuple[str, ProxyThread]
) -> None:
    """EndTxn and InitProducerId are answered with CONCURRENT_TRANSACTIONS three times each."""
    upstream, proxy = through
    transactional_id = f"{library}-transactions"
    numbers = [
        proxy.add(
            f"{api} error=CONCURRENT_TRANSACTIONS times=3 transactional_id={transactional_id}"
        )
        for api in ("InitProducerId", "EndTxn")
    ]
    match library:
        case "java":
            _commit_by_java(proxy.bootstrap, transactional_id, upstream)
        case "librdkafka":
            _commit_by_librdkafka(proxy.bootstrap, transactional_id)
        case _:
            asyncio.run(_commit_by_aiokafka(proxy.bootstrap, transactional_id))
    assert [proxy.status(number).effects for number in numbers] == [3, 3]


def _commit_by_java(bootstrap: str, transactional_id: str, upstream: str) -> None:
    command = java_command(
        java_release(upstream),
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", TOPIC, "--num-records", "20", "--record-size", "10", "--throughput", "-1"),
        *("--transactional-id", transactional_id, "--transaction-duration-ms", "60000"),
        *("--producer-props", f"bootstrap.servers={bootstrap}"),
    )
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _commit_by_librdkafka(bootstrap: str, transactional_id: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 2}
    )
    producer.init_transactions(PATIENT_SECONDS)
    producer.begin_transaction()
    producer.produce(TOPIC, b"t")
    producer.commit_transaction(PATIENT_SECONDS)


async def _commit_by_aiokafka(bootstrap: str, transactional_id: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    await producer.start()
    async with producer.transaction():
        await producer.send(TOPIC, b"t")
    await producer.stop()
