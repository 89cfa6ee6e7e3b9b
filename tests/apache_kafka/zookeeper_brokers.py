"""Brokers of ours in ZooKeeper mode, in their own thread, beside brokers of Apache Kafka."""

import asyncio
import threading
from pathlib import Path

from kraftsim.releases.release import release
from kraftsim.server.broker import Broker
from kraftsim.server.config import NodeConfig
from kraftsim.server.parts import Parts
from kraftsim.world.real.world import real_world
from kraftsim.zookeeper.controller import ZookeeperController
from tests.apache_kafka.harness import _free_ports

START_SECONDS = 30


class OurBroker:
    """`start`, then `stop` or `kill`; it listens at `port`."""

    def __init__(
        self,
        directory: Path,
        broker_id: int,
        zookeeper_port: int,
        *,
        release_name: str = "3.9",
        **settings: str,
    ) -> None:
        (self.port,) = _free_ports(1)
        self.broker_id = broker_id
        self._directory = directory / f"broker-{broker_id}"
        self._parts = Parts.for_release(release(release_name))
        self._incarnation = 0
        self._config = NodeConfig.parse(
            {
                "broker.id": str(broker_id),
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
                "zookeeper.connect": f"127.0.0.1:{zookeeper_port}",
                "zookeeper.session.timeout.ms": "6000",
                "offsets.topic.replication.factor": "1",
                "log.dirs": str(self._directory / "data"),
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.broker: Broker
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def controller(self) -> ZookeeperController:
        """Its controller component."""
        found = self.broker.zookeeper.controller if self.broker.zookeeper is not None else None
        assert isinstance(found, ZookeeperController)
        return found

    def start(self) -> None:
        """Start and wait until it serves."""
        self._incarnation += 1
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(START_SECONDS)

    def stop(self) -> None:
        """Shut down cleanly."""
        asyncio.run_coroutine_threadsafe(self.broker.stop(), self._loop).result(START_SECONDS)
        self._end()

    def kill(self) -> None:
        """Stop without a clean shutdown."""
        self._loop.call_soon_threadsafe(self.broker.abort)
        self._end()

    async def _start(self) -> None:
        world = real_world(
            run="test",
            node=f"broker-{self.broker_id}",
            incarnation=self._incarnation,
            data_dir=self._directory / "data",
            events_dir=self._directory / "events",
            seed=self.broker_id,
            started_ns=0,
        )
        self.broker = Broker(world, self._config, self._parts)
        await self.broker.start()
        await self.broker.ready()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
