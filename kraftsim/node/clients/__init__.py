"""Workload clients: asyncio shells around the pure client rules; they run in virtual time and over sockets alike."""

from kraftsim.node.clients.id_asker import InitProducerIdClient
from kraftsim.node.clients.producer import ProducerClient
from kraftsim.node.clients.reader import ReaderClient, ReadRecord

__all__ = ["InitProducerIdClient", "ProducerClient", "ReadRecord", "ReaderClient"]
