"""One combined node and one partition: the smallest cluster in which a request of a transaction can
arrive late.

Every leader and every coordinator is the same node, so the same frames pass in each run, and a run
on Apache Kafka needs a single process.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from kraftsim.clients.transactional_producer import AbortNeeded, ProducerFailed, TransactionalClient
from kraftsim.lab.workloads.replication_workload import UNDER_ANY_CLOCK

PRODUCE, ADD_PARTITIONS_TO_TXN, END_TXN, WRITE_TXN_MARKERS = 0, 24, 26, 27
"""API keys."""
SETTINGS: Final = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "500",
    **UNDER_ANY_CLOCK,
    "transactional.id.expiration.ms": str(2**31 - 1),
    "offsets.retention.minutes": str(2**30),
}
"""Coordinators have one partition, and timed-out transactions are looked for often; a clock that
jumps by days expires nothing.
"""


async def carry_on(
    client: TransactionalClient,
    work: Callable[[TransactionalClient], Awaitable[None]],
    restart: Callable[[], Awaitable[TransactionalClient]],
) -> TransactionalClient:
    """Do the work of one transaction as an application does: abort it if necessary, and replace a
    producer that has failed.

    Return the producer for the next transaction. Raises ProducerFailed if the new one fails, too.
    """
    try:
        try:
            await work(client)
        except AbortNeeded:
            await client.abort()
    except (AbortNeeded, ProducerFailed):
        await client.close()
        return await restart()
    return client
