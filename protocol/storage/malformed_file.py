"""The error of this package: a file with bytes that Kafka would not have written."""

from protocol.malformed import MalformedMessage


class MalformedFile(MalformedMessage):
    """`path` is the kind of file (`quorum-state`), not a path on disk: these modules do not access
    files.
    """

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(None, None, file, reason)
