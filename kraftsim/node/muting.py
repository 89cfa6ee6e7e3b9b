"""A connection that is not listened to for a while: what clients above a quota meet (KIP-219)."""

import asyncio

from kraftsim.node.call import Call


def mute(call: Call, pause_ms: int) -> None:
    """Listen to a client no more until the pause is over: what it sends meanwhile waits."""
    connection = call.connection
    connection.pause_writing()
    asyncio.get_running_loop().call_later(pause_ms / 1000, connection.resume_writing)
