"""Workers that share a queue: members of a share group acquire records, work on them, and accept,
release, reject or renew them.

Some acknowledge with the next poll (implicit), some say what becomes of each record (explicit). By
the seed they crash, leave and pause with records in hand; others must get these. In the end all
workers accept everything, and each record of the topic must have been delivered to some of them.
Source: KIP-932, KIP-1222.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kraftsim.clients.cluster_connections import ClientIdentity, ClusterConnections
from kraftsim.clients.group_consumer import MembershipFailed
from kraftsim.clients.rules_member_steps import GroupProtocol, MemberSettings
from kraftsim.clients.rules_share_consumer import AcknowledgementMode
from kraftsim.clients.share_consumer import (
    ShareConsumerClient,
    ShareConsumerSettings,
    ShareRecord,
)
from kraftsim.cluster.scenario import ClientHost, ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.workloads.phases import CALLS_SECONDS
from kraftsim.lab.workloads.replication_workload import TOPIC
from kraftsim.lab.workloads.transform_app import Mishaps
from protocol.errors import ErrorCode
from protocol.messages.k44_incremental_alter_configs import (
    SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.k78_share_fetch import AcknowledgeType

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

GROUP_ID = "workers"
OPENER = "opener"
GROUP_RESOURCE = 32
LOOK_SECONDS = 0.2
ANSWERS: tuple[tuple[float, AcknowledgeType], ...] = (
    (0.03, AcknowledgeType.REJECT),
    (0.12, AcknowledgeType.RENEW),
    (0.25, AcknowledgeType.RELEASE),
)
"""Up to which random number a record gets which answer; above all of them it is accepted."""


@dataclass(kw_only=True, slots=True)
class ShareWorker:
    """One worker; call `live` to run it until `is_done`. Each incarnation is a new member."""

    client_host: ClientHost
    random: "Random"
    mishaps: Mishaps
    delivered: dict[str, None]
    """The keys of records that any worker received."""
    is_done: Callable[[], bool]
    _incarnation: int = 0

    async def live(self) -> None:
        """Work, and begin again after a crash, a departure or a failure."""
        while not self.is_done():
            self._incarnation += 1
            await self._live_once()

    async def _live_once(self) -> None:
        consumer = self.client_host.share_consumer(
            f"{self.client_host.name}.{self._incarnation}",
            MemberSettings(group_id=GROUP_ID, topics=(TOPIC,), group_protocol=GroupProtocol.SHARE),
            ShareConsumerSettings(
                mode=self.random.choice((*AcknowledgementMode, AcknowledgementMode.EXPLICIT)),
                max_poll_records=self.random.choice((1, 4, 20)),
                acquires_exactly=self.random.random() < 0.5,
            ),
        )
        leaves = True
        await consumer.start()
        try:
            while not self.is_done():
                records = await consumer.poll_shared()
                self.delivered |= dict.fromkeys(record.read.key for record in records)
                if self.mishaps.crash():
                    leaves = False
                    break
                if self.mishaps.depart():
                    break
                seconds = self.mishaps.pause()
                if seconds:
                    consumer.freeze()
                    await asyncio.sleep(seconds)
                    consumer.thaw()
                await self._answer(consumer, records)
        except MembershipFailed:
            leaves = False
        await consumer.close(leaves=leaves)

    async def _answer(self, consumer: ShareConsumerClient, records: Sequence[ShareRecord]) -> None:
        """Say what becomes of records; a renewed one is accepted after the renewal."""
        renewed = []
        for record in records:
            kind = self._kind()
            if consumer.acknowledge(record, kind) and kind is AcknowledgeType.RENEW:
                renewed.append(record)
        if renewed:
            await consumer.commit_shared()
        for record in renewed:
            consumer.acknowledge(record, AcknowledgeType.ACCEPT)

    def _kind(self) -> AcknowledgeType:
        if self.mishaps.are_over():
            return AcknowledgeType.ACCEPT
        number = self.random.random()
        return next((kind for up_to, kind in ANSWERS if number < up_to), AcknowledgeType.ACCEPT)


@dataclass(kw_only=True, slots=True)
class ShareApp:
    """The workers of one share group."""

    delivered: dict[str, None] = field(default_factory=dict)
    _is_done: bool = False

    async def open(self, stage: ScenarioEnvironment) -> None:
        """Let the group begin at the earliest offset. Raises ScenarioFailed."""
        host = stage.client_host(OPENER)
        answer = await host.run(_configure(host))
        error = answer.responses[0]
        if error.error_code != ErrorCode.NONE:
            raise ScenarioFailed(f"the group cannot be configured: {error.error_message}")

    async def work(
        self, stage: ScenarioEnvironment, name: str, *, are_over: Callable[[], bool]
    ) -> None:
        """Run one worker until `finish` returns; mishaps and answers but accepting end before."""
        host = stage.client_host(name)
        random = stage.random(name)
        worker = ShareWorker(
            client_host=host,
            random=random,
            mishaps=Mishaps(
                random=random,
                crashes=stage.workload("crashes"),
                departures=stage.workload("departures"),
                pauses=stage.workload("pauses"),
                are_over=are_over,
            ),
            delivered=self.delivered,
            is_done=lambda: self._is_done,
        )
        await host.run(worker.live())

    async def finish(self, stage: ScenarioEnvironment, keys: Sequence[str]) -> None:
        """Wait until all records were delivered, and let the workers end.

        Raises ScenarioFailed if some are not within a while.
        """
        give_up_at = stage.now_seconds() + CALLS_SECONDS / 2
        missing = list(keys)
        while missing and stage.now_seconds() < give_up_at:
            await stage.sleep(LOOK_SECONDS)
            missing = [key for key in missing if key not in self.delivered]
        self._is_done = True
        if missing:
            raise ScenarioFailed(
                f"{len(missing)} of {len(keys)} records were never delivered: {missing[:5]}"
            )


async def _configure(host: ClientHost) -> IncrementalAlterConfigsResponse:
    """Set the configurations of the group."""
    identity = ClientIdentity(client_id=OPENER, bootstrap=tuple(host.bootstrap))
    connections = ClusterConnections(host.world, identity)
    row = AlterableConfig(name="share.auto.offset.reset", config_operation=SET, value="earliest")
    resource = AlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=GROUP_ID, configs=[row]
    )
    connection = await connections.to_any()
    answer = await connection.request(IncrementalAlterConfigsRequest(resources=[resource]))
    connections.close()
    assert isinstance(answer, IncrementalAlterConfigsResponse), "the response"
    return answer
