"""Readiness probes: sends Metadata to the brokers, as any client would, until each of them knows
all of them, and a command to ZooKeeper.
"""

import asyncio
from collections.abc import Sequence

from kraftsim.server.outbound import PeerConnection
from protocol.messages.k03_metadata import MetadataRequest, MetadataResponse

RETRY_SECONDS = 0.02
ANSWER_MS = 2000


async def wait_until_answering(addresses: Sequence[tuple[str, int]], *, brokers: int) -> None:
    """Return when every address answers Metadata with `brokers` live brokers.

    Waits without a limit: the caller sets one.
    """
    for host, port in addresses:
        while not await _knows(host, port, brokers):
            await asyncio.sleep(RETRY_SECONDS)


async def _knows(host: str, port: int, brokers: int) -> bool:
    connection = PeerConnection(host, port, client_id="kraftsim-probe")
    try:
        await connection.connect(timeout_ms=ANSWER_MS)
        answer = await connection.request(MetadataRequest(topics=[]), timeout_ms=ANSWER_MS)
    except OSError:
        return False
    finally:
        connection.close()
    assert isinstance(answer, MetadataResponse), "Metadata was asked"
    return len(answer.brokers) >= brokers


async def does_zookeeper_serve(host: str, port: int) -> bool:
    """Send a ZooKeeper server one command that it answers only once it serves sessions."""
    try:
        async with asyncio.timeout(ANSWER_MS / 1000):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(b"srvr")
                return b"Zxid" in await reader.read()
            finally:
                writer.close()
    except OSError:  # TimeoutError is one
        return False
