"""The common parts of benches: the list of benches, and the client of a quorum."""

import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from tools.bench.catalogue import BENCHES
from tools.bench.quorums import QuorumClient

FILES = Path(__file__).parents[2] / "tools" / "bench"
NOT_FOR_MAKE = {"analysis", "world"}
"""Benches whose results are in other tables."""


class Controller(socketserver.ThreadingTCPServer):
    """Answers AllocateProducerIds with the given error codes in order, repeating the last one; None
    closes the connection.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, *codes: int | None) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.codes = list(codes)
        self.asked_count = 0


class Answering(socketserver.StreamRequestHandler):
    """One connection."""

    server: Controller

    def handle(self) -> None:
        """Respond until the script closes the connection."""
        while size := self.rfile.read(4):
            request = self.rfile.read(int.from_bytes(size))
            self.server.asked_count += 1
            code = self.server.codes.pop(0) if len(self.server.codes) > 1 else self.server.codes[0]
            if code is None:
                return
            body = request[4:8] + b"\0" + struct.pack(">ihqi", 0, code, 1000, 1000) + b"\0"
            self.wfile.write(len(body).to_bytes(4) + body)


@contextmanager
def controllers(*codes: tuple[int | None, ...]) -> Iterator[list[Controller]]:
    """Serve some controllers."""
    with ExitStack() as stack:
        found = [stack.enter_context(Controller(*each)) for each in codes]
        for each in found:
            threading.Thread(target=each.serve_forever, args=(0.01,), daemon=True).start()
            stack.callback(each.shutdown)
        yield found


def test_make_bench_lists_every_bench() -> None:
    """A bench that is never run measures nothing."""
    assert (
        set(BENCHES)
        == {file.stem.removeprefix("bench_") for file in FILES.glob("bench_*.py")} - NOT_FOR_MAKE
    )


@pytest.mark.parametrize(
    ("codes", "answered_by"),
    [
        ([(ErrorCode.NOT_CONTROLLER,), (ErrorCode.NONE,)], 1),
        ([(None, None, ErrorCode.NONE), (ErrorCode.NOT_CONTROLLER,)], 0),
        (
            [
                (ErrorCode.NOT_CONTROLLER,),
                (ErrorCode.NOT_CONTROLLER, None, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NONE),
            ],
            1,
        ),
    ],
)
def test_a_client_asks_all_controllers_until_one_is_active(
    codes: list[tuple[int | None, ...]], answered_by: int
) -> None:
    """A controller that is not active, closes the connection, or has not caught up is retried."""
    with controllers(*codes) as served:
        client = QuorumClient([f"127.0.0.1:{each.server_address[1]}" for each in served])
        assert client.allocate() == answered_by
        assert served[answered_by].asked_count == len(codes[answered_by]), (
            "and no more often than necessary"
        )
        client.close()
