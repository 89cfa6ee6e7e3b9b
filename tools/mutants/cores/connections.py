"""Connections of a listener: requests lost, split, overwritten or answered out of order."""

from tools.mutants.mutant import Core, Mutator

_connection = Mutator("connections", "kraftsim.server.connection")
_inbox = Mutator("connections", "kraftsim.server.inbox")
_large = Mutator("connections", "kraftsim.server.inbox")

CORE = Core(
    mutants=(
        _connection.mutant(
            "receiver-changed-while-requests-wait",
            "ServerConnection._end_pass",
            "if not waiting and (inbox.announced_bytes or inbox.large is not None):",
            "if inbox.announced_bytes or inbox.large is not None:",
            "a large frame that starts while a request waits for its replicas desynchronises a "
            "connection",
        ),
        _inbox.mutant(
            "half-a-size-forgotten",
            "Inbox._keep",
            "self._size_part = buffer[position:end]",
            "self._size_part = b''",
            "a read that ends within the size of a frame desynchronises a connection",
        ),
        _large.mutant(
            "writes-over-a-request-that-waits",
            "LargeFrames._make_room",
            "is_free = sys.getrefcount(self._buffer) == self._own_references",
            "is_free = True",
            "a batch that waits for its replicas is overwritten by the next one",
            equivalent="it is not read again: only Produce keeps a view of its frame, appends "
            "before it waits, and copies what must be verified",
        ),
        _large.mutant(
            "beginning-of-a-large-frame-not-moved",
            "LargeFrames._move",
            "self._view[:begun_bytes] = begun",
            "pass",
            "a large frame starts with zeros",
        ),
        _large.mutant(
            "next-frame-expected-where-this-one-is",
            "LargeFrames.keep",
            "self._first, self._end = position, end",
            "self._end = end",
            "a large frame is served again and again",
        ),
    )
)
