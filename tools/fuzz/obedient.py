"""Clusters that get all requests from clients with all permissions, including those that
legitimately end service.

Such a cluster need not serve, but its nodes must keep running, respond to ApiVersions in time as
long as they accept connections, and restart from the resulting state. A cluster that no longer
serves is restarted on its data, and recreated if that does not help.
"""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.readiness import ClusterFailed, NotReady
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.batches import batch
from kraftsim.inspect.meaning import error_name
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.k18_api_versions import ApiVersionsRequest
from tools.fuzz.answer_targets import HEALTHY_TOPIC, Prepared, asked_once, prepared

HANG_SECONDS = 2.0
PAUSE_SECONDS = 0.5
RESTART_SECONDS = 5.0
PRODUCE_SECONDS = 3.0


@dataclass(slots=True)
class DisposableCluster:
    """One such cluster. `renewals` counts the reasons for its restarts."""

    name: str
    spec: ClusterSpec
    base: Path
    cluster: ProcessCluster = field(init=False)
    target: Prepared = field(init=False)
    directories: list[RunDirectory] = field(default_factory=list)
    renewals: Counter[str] = field(default_factory=Counter)
    peaks: dict[str, int] = field(default_factory=dict)
    """Node -> peak resident bytes."""
    longest_seconds: float = 0.0
    """The longest time until a node responded to ApiVersions."""

    async def start(self) -> None:
        """Start a new cluster on empty directories."""
        directory = RunDirectory(
            self.base / f"{self.name.replace(' ', '-')}-{len(self.directories)}"
        )
        self.directories.append(directory)
        self.cluster = ProcessCluster(self.spec, directory)
        await self.cluster.start()
        target = await prepared(self.name, self.spec)
        if len(self.directories) == 1:
            self.target = target
        self.target.ids[:] = target.ids

    async def look(self) -> str | None:
        """Return a failure, or None. A cluster that legitimately serves no more is restarted."""
        ended = [name for name in self.spec.node_names if self.cluster.has_ended(name)]
        if ended:
            return (
                f"{self.name}: {', '.join(ended)} ended: "
                f"{self.cluster.directory.human_log(ended[0])}"
            )
        for name in self.spec.node_names:
            resident = psutil.Process(self.cluster.pid(name)).memory_info().rss
            self.peaks[name] = max(self.peaks.get(name, 0), resident)
        trouble = None
        for port in sorted({each.port for each in self.target.listeners}):
            started = time.perf_counter()
            try:
                async with asyncio.timeout(HANG_SECONDS):
                    await asked_once(self.spec.host, port, ApiVersionsRequest(), 0)
            except TimeoutError:
                return (
                    f"{self.name}: port {port} does not respond to ApiVersions within "
                    f"{HANG_SECONDS} s"
                )
            except (OSError, asyncio.IncompleteReadError):
                trouble = "connections are closed"
            self.longest_seconds = max(self.longest_seconds, time.perf_counter() - started)
        trouble = trouble or await self._why_not_produced()
        if trouble is None:
            return None
        self.renewals[trouble] += 1
        return await self._renewed()

    async def _renewed(self) -> str | None:
        try:
            await restarted(self.cluster, RESTART_SECONDS)
            if await self._why_not_produced() is None:
                return None
        except NotReady:
            pass
        except ClusterFailed as failure:
            return f"{self.name} does not restart: {failure}"
        for name in self.spec.node_names:
            self.cluster.kill(name)
        await self.start()
        return None

    async def _why_not_produced(self) -> str | None:
        data = PartitionProduceData(index=0, records=batch())
        rows = [TopicProduceData(name=HEALTHY_TOPIC, partition_data=[data])]
        try:
            async with asyncio.timeout(PRODUCE_SECONDS):
                asked = ProduceRequest(acks=-1, timeout_ms=1500, topic_data=rows)
                answer = await asked_once(*self.target.healthy, asked, 9)
        except TimeoutError:
            return "Produce gets no response"
        except (OSError, asyncio.IncompleteReadError):
            return "connections are closed"
        assert isinstance(answer, ProduceResponse), "the response of Produce"
        error = answer.responses[0].partition_responses[0].error_code
        return f"Produce gets {error_name(error)}" if error else None


async def restarted(cluster: ProcessCluster, timeout_seconds: float) -> None:
    """Kill all nodes and restart them on their data. Raises ClusterFailed, NotReady."""
    for name in cluster.spec.node_names:
        cluster.kill(name)
    for name in cluster.spec.node_names:
        cluster.restart(name)
    await cluster.answering(timeout_seconds=timeout_seconds)
