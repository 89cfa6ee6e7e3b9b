"""Producers of three libraries that send a record every 20 ms through the proxy, and the proxy
itself in a thread, so that tests can add faults while they go on.
"""

import asyncio
import json
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

import confluent_kafka
from aiokafka import AIOKafkaProducer

from kraftsim.cluster.proxy.upstream.upstream_proxy import UpstreamPlan, UpstreamProxy
from kraftsim.lab.faults.request_fault_text import parse_request_fault
from kraftsim.lab.faults.rules_request_faults import RequestFaultStatus
from kraftsim.world.real.runner import new_event_loop
from tests.apache_kafka.class_path import DEFAULT_RELEASE
from tests.apache_kafka.harness import TOOLS_OF_4, java_command

INTERVAL_SECONDS = 0.02
STEP_SECONDS = 0.02
PATIENT_SECONDS = 60.0
T = TypeVar("T")


class ProxyThread:
    """An `UpstreamProxy` on an event loop of its own."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.partition(",")[0].rpartition(":")
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.proxy = self._run(self._open(UpstreamPlan(upstream=((host, int(port)),), port=0)))

    @property
    def bootstrap(self) -> str:
        """The value of bootstrap.servers for clients."""
        return self.proxy.bootstrap

    def __enter__(self) -> "ProxyThread":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run(self.proxy.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def add(self, text: str) -> int:
        """Add a fault in its text form."""
        return self._run(self._call(lambda: self.proxy.add_fault(parse_request_fault(text))))

    def end(self, number: int) -> None:
        """End a fault."""
        self._run(self._call(lambda: self.proxy.end_fault(number)))

    def status(self, number: int) -> RequestFaultStatus:
        """What became of a fault."""
        found = self._run(self._call(self.proxy.fault_status))
        return next(each for each in found if each.number == number)

    async def _open(self, plan: UpstreamPlan) -> UpstreamProxy:
        proxy = UpstreamProxy(plan, asyncio.get_running_loop())
        await proxy.open()
        return proxy

    async def _call(self, call: Callable[[], T]) -> T:
        return call()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENT_SECONDS)


class Load(Protocol):
    """A producer that goes on until it is stopped."""

    client_id: str
    acknowledged: int
    failed: list[str]
    """The errors of records that were given up."""

    def stop(self) -> None:
        """End it."""
        ...


class _ThreadLoad(ABC):
    """What the Python loads have in common."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.acknowledged = 0
        self.failed: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._stopping.set()
        self._thread.join(PATIENT_SECONDS)

    @abstractmethod
    def _work(self) -> None:
        """Send records until `_stopping` is set."""


class AiokafkaLoad(_ThreadLoad):
    """aiokafka, idempotent."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__("aiokafka-load")
        self._bootstrap, self._topic = bootstrap, topic
        self.start()

    def _work(self) -> None:
        asyncio.run(self._send())

    async def _send(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            client_id=self.client_id,
            enable_idempotence=True,
            request_timeout_ms=5000,
        )
        await producer.start()
        while not self._stopping.is_set():
            try:
                await producer.send_and_wait(self._topic, b"a")
                self.acknowledged += 1
            except Exception as error:  # whatever the library raises is a record that was given up
                self.failed.append(repr(error))
            await asyncio.sleep(INTERVAL_SECONDS)
        await producer.stop()


class LibrdkafkaLoad(_ThreadLoad):
    """librdkafka, idempotent."""

    def __init__(self, bootstrap: str, topic: str, client_id: str = "librdkafka-load") -> None:
        super().__init__(client_id)
        self._topic = topic
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": self.client_id,
                "enable.idempotence": True,
                "socket.timeout.ms": 5000,
                "reconnect.backoff.max.ms": 200,
                "linger.ms": 0,
                "log_level": 2,
            }
        )
        self.start()

    def _work(self) -> None:
        def delivered(
            error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
        ) -> None:
            if error is None:
                self.acknowledged += 1
            else:
                self.failed.append(str(error))

        while not self._stopping.is_set():
            self._producer.produce(self._topic, b"c", on_delivery=delivered)
            self._producer.poll(INTERVAL_SECONDS)
        self._producer.flush(PATIENT_SECONDS)


class JavaLoad:
    """Kafka's own VerifiableProducer; retries, which it leaves out, are put back."""

    def __init__(self, bootstrap: str, topic: str, release: str, directory: Path) -> None:
        self.client_id = "java-load"
        self.acknowledged = 0
        self.failed: list[str] = []
        settings = directory / "java-load.properties"
        settings.write_text(
            f"client.id={self.client_id}\nretries=2147483647\nenable.idempotence=true\n"
            "request.timeout.ms=5000\nlinger.ms=0\nreconnect.backoff.max.ms=200\n"
        )
        rate = str(round(1 / INTERVAL_SECONDS))
        arguments = ["--topic", topic, "--throughput", rate, "--producer.config", str(settings)]
        self._process = subprocess.Popen(
            java_command(
                java_release(release),
                "org.apache.kafka.tools.VerifiableProducer",
                *("--bootstrap-server", bootstrap, *arguments),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._thread.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said: Mapping[str, object] = json.loads(line) if line.startswith("{") else {}
            if said.get("name") == "producer_send_success":
                self.acknowledged += 1
            elif said.get("name") == "producer_send_error":
                self.failed.append(line)


def java_release(release: str) -> str:
    """The release whose client is used against a cluster."""
    return DEFAULT_RELEASE if release == DEFAULT_RELEASE else TOOLS_OF_4


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = PATIENT_SECONDS) -> None:
    """Return when something is so; an assertion names what did not come."""
    give_up_at = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < give_up_at, what
        time.sleep(STEP_SECONDS)
