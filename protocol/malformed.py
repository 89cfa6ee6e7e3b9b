"""The errors of this package: bytes that are not a message or a file of Kafka, or an object that
cannot be encoded.

They name the API, the version, the field, and the byte, so that one log line can explain a closed
connection.
"""


class MalformedMessage(ValueError):
    """A message that cannot be decoded or encoded.

    `path` is the field from the top of the message (`topics[2].partitions[0].records`), empty for
    the whole message. `api_key` and `version` are None if the message has none. `position` is the
    byte counted from the start of the message, None when encoding.
    """

    def __init__(
        self,
        api_key: int | None,
        version: int | None,
        path: str,
        reason: str,
        position: int | None = None,
    ) -> None:
        super().__init__(api_key, version, path, reason, position)
        self.api_key = api_key
        self.version = version
        self.path = path
        self.reason = reason
        self.position = position

    def __str__(self) -> str:
        subject = "message" if self.api_key is None else f"api {self.api_key}"
        version = "" if self.version is None else f" v{self.version}"
        path = f" at {self.path}" if self.path else ""
        position = "" if self.position is None else f" (byte {self.position})"
        return f"{subject}{version}{path}{position}: {self.reason}"


class MalformedFile(MalformedMessage):
    """`path` is the kind of file (`quorum-state`), not a path on disk: these modules do not access
    files.
    """

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(None, None, file, reason)
