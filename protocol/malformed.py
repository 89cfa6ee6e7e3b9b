"""The one error of this floor: bytes that are not a message, or an object that no bytes can carry.

It names where: which API, which version, which field, at which byte, so that a closed connection can be explained by one log line.
"""


class MalformedMessage(ValueError):
    """A message that cannot be parsed or built.

    `path` names the field from the top of the message (`topics[2].partitions[0].records`), empty where it is the whole message.
    `api_key` and `version` are None where the message has none. `position` is the byte counted from the start of the message, None when building.
    """

    def __init__(self, api_key: int | None, version: int | None, path: str, reason: str, position: int | None = None) -> None:
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
