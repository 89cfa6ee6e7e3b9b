"""An application that commits offsets of a group without members: in a transaction, and outside of
it before the transaction ends.

The last commit wins, whenever the marker arrives; after an abort only commits outside of the
transaction count.
Source: KIP-98, KAFKA-5247.
"""

import asyncio
from dataclasses import dataclass

from kraftsim.clients.group_consumer import GroupConsumerClient
from kraftsim.clients.rules_member_steps import MemberSettings
from kraftsim.clients.rules_producer_steps import TopicPartition
from kraftsim.clients.rules_transaction_steps import GroupIdentity, TransactionalSettings
from kraftsim.clients.transactional_producer import AbortNeeded, TransactionalClient
from kraftsim.cluster.scenario import ScenarioEnvironment
from protocol.errors import ErrorCode

RETRY_SECONDS = 0.1
INSIDE, OUTSIDE, STEP = 5, 7, 10
"""The offsets that a round commits in its transaction and outside of it, and the distance to the
next round.
"""


@dataclass(kw_only=True, slots=True)
class OffsetCommitWorkload:
    """`expected` is the committed offset of the group when all transactions are decided."""

    group_id: str
    topic: str
    expected: int = -1

    async def keep(self, stage: ScenarioEnvironment, rounds: int) -> None:
        """Commit in transactions, in every other round also outside of them, for so many rounds."""
        client_host = stage.client_host("keeper")
        producer = client_host.transactional_producer(
            "keeper.1", TransactionalSettings(transactional_id="keeper"), names_member=False
        )
        consumer = client_host.group_consumer(
            "keeper.2", MemberSettings(group_id=self.group_id, topics=(self.topic,))
        )

        async def work() -> None:
            await producer.init()
            for index in range(rounds):
                await self._round(producer, consumer, index)
            await producer.close()
            await consumer.close(leaves=False)

        await client_host.run(work())

    async def ask(self, stage: ScenarioEnvironment) -> int:
        """Return the committed offset of the group, with all transactions decided."""
        questions = stage.questions("keeper-3")
        offsets: dict[int, int] = {}
        while not offsets:
            offsets = await questions.committed(self.group_id, self.topic, 1)
            await asyncio.sleep(RETRY_SECONDS)
        questions.close()
        return offsets[0]

    async def _round(
        self, producer: TransactionalClient, consumer: GroupConsumerClient, index: int
    ) -> None:
        where, first = TopicPartition(self.topic, 0), STEP * index
        await producer.begin()
        try:
            await producer.send_offsets(GroupIdentity(self.group_id), {where: first + INSIDE})
            if index % 2 == 0:
                await self._outside(consumer, where, first + OUTSIDE)
            if index % 3 == 2:
                await producer.abort()
                return
            await producer.commit()
        except AbortNeeded:
            await producer.abort()
            return
        if index % 2:
            self.expected = first + INSIDE

    async def _outside(
        self, consumer: GroupConsumerClient, where: TopicPartition, offset: int
    ) -> None:
        """Commit, with retries, until it succeeds."""
        while True:
            try:
                if await consumer.commit({where: offset}) is ErrorCode.NONE:
                    self.expected = offset
                    return
            except OSError:
                pass
            await asyncio.sleep(RETRY_SECONDS)
