"""Mutes a connection: the throttling of clients above a quota (KIP-219)."""

import asyncio

from kraftsim.server.call import Call


def mute(call: Call, pause_ms: int) -> None:
    """Read no requests of a client until the pause is over: later requests wait."""
    connection = call.connection
    connection.pause_writing()
    asyncio.get_running_loop().call_later(pause_ms / 1000, connection.resume_writing)
