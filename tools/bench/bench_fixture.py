"""Measures what a test waits for: a cluster of `kraftsim.Cluster` until it is ready, a topic, a
first idempotent record, a first read by a group, the stop; and, with `--from-nothing`, a new
project until its first test is green.

Clients are aiokafka and librdkafka. librdkafka asks for its producer id once when it is created,
before it is connected, and again 500 ms later: its first idempotent record has that time in it.
The times of the first round (imports, compiled codecs) are reported apart. On a busy machine the
fewest milliseconds of many rounds and the CPU time say most; the load is printed.

python -m tools.bench.bench_fixture [--rounds 20] [--from-nothing]
"""

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import kraftsim
from tools.bench.result import Basis, report_cost

PROJECT_ROOT = Path(__file__).parents[2]
MILLISECONDS = 1000
SECONDS = 30
CPU_MARK = ", CPU of the process"
FIRST_TEST = """
def test_one_record(kraftsim_cluster, kraftsim_topic):
    producer = confluent_kafka.Producer(kraftsim_cluster.client_settings())
    producer.produce(kraftsim_topic, b"hello")
    assert producer.flush(20) == 0
"""


class Rounds:
    """Milliseconds by step, one per round."""

    def __init__(self) -> None:
        self.steps: dict[str, list[float]] = {}

    def add(self, step: str, seconds: float) -> None:
        """Note how long a step took."""
        self.steps.setdefault(step, []).append(seconds * MILLISECONDS)

    def timed(self, step: str, work: Callable[[], object]) -> None:
        """Do something and note its time and its CPU time."""
        began, began_cpu = time.perf_counter(), time.process_time()
        work()
        self.add(step, time.perf_counter() - began)
        self.add(f"{step}{CPU_MARK}", time.process_time() - began_cpu)

    def report(self, brokers: int) -> None:
        """Report each step: the rounds after the first one, and the first one as text."""
        for step, (first, *later) in self.steps.items():
            words, is_cpu, _ = step.partition(CPU_MARK)
            name = words.replace(", ", "_").replace(" ", "_")
            report_cost(
                f"fixture.{name}{'.cpu' * bool(is_cpu)}.{brokers}",
                f"{step}, {brokers} broker{'s' * (brokers > 1)} and a controller",
                "ms",
                later,
                basis=Basis.CPU if is_cpu else Basis.WALL,
            )
            print(f"  first round {first:.0f} ms")


def one_round(brokers: int, rounds: Rounds) -> None:
    """Start a cluster, use it with both clients, stop it."""
    cluster = kraftsim.Cluster(brokers=brokers)
    rounds.timed("start", cluster.start)
    try:
        rounds.timed("topic", cluster.create_topic)
        asyncio.run(_by_aiokafka(cluster, rounds))
        _by_librdkafka(cluster, rounds)
    finally:
        rounds.timed("stop", cluster.stop)


async def _by_aiokafka(cluster: kraftsim.Cluster, rounds: Rounds) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    topic, address = "topic-1", cluster.bootstrap
    began = time.perf_counter()
    producer = AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True)
    await producer.start()
    await producer.send_and_wait(topic, b"hello")
    rounds.add("first idempotent record, aiokafka", time.perf_counter() - began)
    began = time.perf_counter()
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=address, group_id="one", auto_offset_reset="earliest"
    )
    await consumer.start()
    await consumer.getone()
    rounds.add("first group read, aiokafka", time.perf_counter() - began)
    await consumer.stop()
    await producer.stop()


def _by_librdkafka(cluster: kraftsim.Cluster, rounds: Rounds) -> None:
    import confluent_kafka

    settings = cluster.client_settings()
    for is_idempotent, name in ((False, "plain"), (True, "idempotent")):
        began = time.perf_counter()
        producer = confluent_kafka.Producer({**settings, "enable.idempotence": is_idempotent})
        producer.produce("topic-1", b"hello")
        assert producer.flush(SECONDS) == 0, "the record is acknowledged"
        rounds.add(f"first {name} record, librdkafka", time.perf_counter() - began)
    began = time.perf_counter()
    consumer = confluent_kafka.Consumer(
        {**settings, "group.id": "two", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["topic-1"])
    while (message := consumer.poll(0.01)) is None or message.error():
        assert time.perf_counter() - began < SECONDS, "the group reads"
    rounds.add("first group read, librdkafka", time.perf_counter() - began)
    consumer.close()


def from_nothing() -> dict[str, tuple[float, float]]:
    """Return the seconds and the CPU seconds of each step of a new project: an environment, the
    installation of a wheel that was built before, and its first test, twice.
    """
    took: dict[str, tuple[float, float]] = {}

    def step(name: str, *command: str) -> None:
        began, began_cpu = time.perf_counter(), _cpu_of_children()
        subprocess.run(command, cwd=project, env=environment, check=True, stdout=subprocess.DEVNULL)
        took[name] = time.perf_counter() - began, _cpu_of_children() - began_cpu

    with tempfile.TemporaryDirectory(prefix="kraftsim-bench-") as place:
        project = Path(place)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        program = str(project / "env" / "bin" / "python")
        wheels = str(project / "wheels")
        (project / "test_first.py").write_text(f"import confluent_kafka\n\n{FIRST_TEST}")
        pip = ("-m", "pip", "--quiet", "--disable-pip-version-check")
        step(
            "(the wheel is built)",
            *(sys.executable, *pip, "wheel", "--no-deps", "--no-build-isolation"),
            *("--wheel-dir", wheels, str(PROJECT_ROOT)),
        )
        (wheel,) = Path(wheels).glob("kraftsim-*.whl")
        step("new environment", sys.executable, "-m", "venv", str(project / "env"))
        wanted = (str(wheel), "pytest", "confluent-kafka")
        step("pip install", program, *pip, "install", *wanted)
        step("first test", program, "-m", "pytest", "-q")
        step("(the same again)", program, "-m", "pytest", "-q")
    return took


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--from-nothing", action="store_true")
    options = parser.parse_args()
    for brokers in (1, 3):
        rounds = Rounds()
        for _ in range(options.rounds + 1):
            one_round(brokers, rounds)
        rounds.report(brokers)
    if options.from_nothing:
        took = from_nothing()
        counted = [times for name, times in took.items() if not name.startswith("(")]
        total, cpu = (sum(column) for column in zip(*counted, strict=True))
        title = "from nothing to a first green test"
        report_cost("fixture.from_nothing", title, "s", [total])
        report_cost("fixture.from_nothing.cpu", title, "CPU s", [cpu], basis=Basis.CPU)
        for name, (seconds, cpu) in took.items():
            print(f"  {name}: {seconds:.1f} s, {cpu:.1f} CPU s")
    print(f"load of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
