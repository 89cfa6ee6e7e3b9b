"""An exception that nobody handles inside a node is never mistaken for a lost connection."""

import asyncio

import pytest
import uvloop

from kraftsim.node.mistakes import hear_of_mistakes
from kraftsim.node.outbound import PeerConnection


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("error, is_mistake", [(AssertionError("a false belief"), True), (NameError("x"), True), (ConnectionResetError(), False)])
def test_what_leaves_a_callback_is_heard(new_loop, error, is_mistake):
    """Broken connections and disks are the world's fault; everything else is ours."""
    heard: list[Exception] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        hear_of_mistakes(loop, heard.append)
        done = loop.create_future()

        class Breaks(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                loop.call_soon(done.set_result, None)
                raise error

        class Greets(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                transport.write(b"hello")  # type: ignore[attr-defined]

        server = await loop.create_server(Greets, "127.0.0.1", 0)
        await loop.create_connection(Breaks, *server.sockets[0].getsockname())
        await done
        await asyncio.sleep(0)
        server.close()

    loop = new_loop()
    try:
        loop.run_until_complete(work())
    finally:
        loop.close()
    assert heard == ([error] if is_mistake else [])


def test_an_embedded_cluster_raises_what_a_node_did_wrong(kraftsim_cluster_factory, monkeypatch):
    """A test that uses the fixture fails by it, though every client got its answer in the end."""
    cluster = kraftsim_cluster_factory()
    monkeypatch.setattr(PeerConnection, "data_received", lambda self, data: (_ for _ in ()).throw(NameError("a typing error of ours")))
    cluster.kill("broker-1")
    cluster._submit(cluster._launch("broker-1")).result(10)
    for _ in range(100):
        if cluster._mistakes:
            break
        asyncio.run(asyncio.sleep(0.02))
    monkeypatch.undo()
    with pytest.raises(NameError, match="typing error"):
        cluster.stop()
