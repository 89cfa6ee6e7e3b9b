"""The error of this folder: a file whose bytes are not what Kafka would have written."""

from protocol.malformed import MalformedMessage


class MalformedFile(MalformedMessage):
    """`path` is the kind of file (`quorum-state`), not a place on a disk: these modules never see one."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(None, None, file, reason)
