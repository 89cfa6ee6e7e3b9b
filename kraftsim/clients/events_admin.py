"""Changes of metadata that an administrator requests, and the answers."""

from kraftsim.events.event import Event


class MetadataChangeSent(Event):
    """An administrator sends a request to create a topic (config_name ''), or to set one of its
    configurations (a null value deletes it). `request` counts the requests of the client.
    """

    client_id: str
    request: int
    topic: str
    config_name: str
    config_value: str | None


class MetadataChangeAnswered(Event):
    """The answer for the topic arrived; a request without an answer may or may not take effect."""

    client_id: str
    request: int
    topic: str
    error_code: int
