"""What connections carried, and why they ended. Frame events have a level of their own: see `kraftsim.frame.events`."""

from kraftsim.events.event import Event


class ConnectionOpened(Event):
    """A peer connected to a listener of this node."""

    connection: int
    listener: str
    peer: str


class ConnectionClosed(Event):
    """A connection ended. `reason`: 'peer', 'stopping', 'idle', or what was wrong with its bytes."""

    connection: int
    listener: str
    peer: str
    reason: str


class RequestRefused(Event):
    """A request could not be served at all: unknown API, version out of range, malformed body. `action`: 'closed' or 'answered'."""

    connection: int
    api_key: int
    api_version: int
    correlation_id: int
    reason: str
    action: str


class FrameReceived(Event):
    """A whole frame arrived. On a client side it is a response (`is_response`)."""

    connection: int
    peer: str
    api_key: int
    api_version: int
    correlation_id: int
    is_response: bool
    size_bytes: int


class FrameSent(Event):
    """A whole frame was handed to the transport."""

    connection: int
    peer: str
    api_key: int
    api_version: int
    correlation_id: int
    is_response: bool
    size_bytes: int
