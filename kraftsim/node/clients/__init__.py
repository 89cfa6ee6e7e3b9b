"""Workload clients: asyncio shells around the pure client rules; they run in virtual time and over
sockets alike.
"""

from kraftsim.node.clients.group_consumer import GroupConsumerClient, MembershipFailed
from kraftsim.node.clients.producer import ProducerClient, ProducerIdRefused
from kraftsim.node.clients.producer_id_client import InitProducerIdClient
from kraftsim.node.clients.reader import ReaderClient, ReadRecord
from kraftsim.node.clients.transactional_producer import (
    AbortNeeded,
    ProducerFailed,
    TransactionalClient,
)

__all__ = [
    "AbortNeeded",
    "GroupConsumerClient",
    "InitProducerIdClient",
    "MembershipFailed",
    "ProducerClient",
    "ProducerFailed",
    "ProducerIdRefused",
    "ReadRecord",
    "ReaderClient",
    "TransactionalClient",
]
