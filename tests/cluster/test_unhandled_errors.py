"""An unhandled exception inside a node is never treated as a lost connection."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from kraftsim.server.outbound import PeerConnection
from kraftsim.server.tasks import report_unhandled_errors
from tests.conftest import ClusterFactory


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(
    "error, is_mistake",
    [
        (AssertionError("a false belief"), True),
        (NameError("x"), True),
        (ConnectionResetError(), False),
    ],
)
def test_an_exception_in_a_callback_is_reported(
    new_loop: Callable[[], asyncio.AbstractEventLoop], error: Exception, is_mistake: bool
) -> None:
    """Errors of connections and disks come from the environment; any other exception is a bug."""
    errors: list[Exception] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        report_unhandled_errors(loop, errors.append)
        done = loop.create_future()

        class Breaks(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                loop.call_soon(done.set_result, None)
                raise error

        class Greets(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                # attr-defined: a socket's transport writes
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
    assert errors == ([error] if is_mistake else [])


def test_an_embedded_cluster_raises_the_exception_of_a_node(
    embedded_cluster_factory: ClusterFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test with the fixture fails because of it, even if every client got its response in the
    end.
    """
    cluster = embedded_cluster_factory()
    monkeypatch.setattr(
        PeerConnection,
        "data_received",
        lambda self, data: (_ for _ in ()).throw(NameError("a typing error of ours")),
    )
    cluster.kill("broker-1")
    cluster._submit(cluster._launch("broker-1")).result(10)
    for _ in range(100):
        if cluster._mistakes:
            break
        asyncio.run(asyncio.sleep(0.02))
    monkeypatch.undo()
    with pytest.raises(NameError, match="typing error"):
        cluster.stop()
