"""Connections of a listener: requests lost, cut in two, written over or answered out of turn."""

from mutants.mutant import Core, Workshop

_connection = Workshop("connections", "kraftsim.node.connection")
_inbox = Workshop("connections", "kraftsim.node.inbox")
_large = Workshop("connections", "kraftsim.node.large_frames")

CORE = Core(
    mutants=(
        _connection.mutant(
            "receiver-changed-while-requests-wait",
            "ServerConnection._serve",
            "if not waiting and (inbox.announced_bytes or inbox.large is not None):",
            "if inbox.announced_bytes or inbox.large is not None:",
            "a large frame that begins to come while a request waits for its replicas puts a connection out of step",
        ),
        _inbox.mutant(
            "half-a-size-forgotten",
            "Inbox._keep",
            "self._size_part = buffer[position:end]",
            "self._size_part = b''",
            "a read that ends within the size of a frame puts a connection out of step",
        ),
        _large.mutant(
            "writes-over-a-request-that-waits",
            "LargeFrames._make_room",
            "is_free = sys.getrefcount(self._buffer) == self._own_references",
            "is_free = True",
            "a batch that waits for its replicas is the next one's when it is read again",
            equivalent="nobody reads it again: Produce alone keeps a view of its frame, writes before it waits, and copies what is to be verified",
        ),
        _large.mutant(
            "beginning-of-a-large-frame-not-moved",
            "LargeFrames._move",
            "self._view[:begun_bytes] = begun",
            "pass",
            "a large frame begins with zeros",
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
