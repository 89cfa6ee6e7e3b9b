"""Frames of connections, and the reasons why connections ended.

Frame events have a level of their own: see `kraftsim.frame.events`.
"""

from typing import Final

from kraftsim.events.event import Event

OUTBOUND: Final = "outbound"
"""The `listener` of connections that this node opened; their `peer` is the `link` of their frames:
'own address>address of the peer'.
"""

# `link` is the same name at both ends of a connection: "<address of the end that
# connected>><address of the end that accepted>", host:port as the socket reports it. Ingest uses it
# to pair sent with received frames; '' leaves a frame unpaired.


class ConnectionOpened(Event):
    """A peer connected to a listener of this node."""

    connection: int
    listener: str
    peer: str


class ConnectionClosed(Event):
    """A connection ended.

    `reason`: 'peer', 'stopping', 'idle', or the protocol error in its bytes.
    """

    connection: int
    listener: str
    peer: str
    reason: str


class RequestRefused(Event):
    """A request could not be served at all: unknown API, version out of range, malformed body.

    `action`: 'closed' or 'answered'.
    """

    connection: int
    api_key: int
    api_version: int
    correlation_id: int
    reason: str
    action: str


class AuthenticationRefused(Event):
    """A client of a SASL listener did not authenticate.

    `sasl_mechanism` is '' before the client names one the listener has.
    """

    connection: int
    listener: str
    peer: str
    sasl_mechanism: str
    reason: str


class MessageFailed(Event):
    """An answer or a request could not be built or encoded.

    `action`: 'answered' with UNKNOWN_SERVER_ERROR, 'closed', or 'not sent' for a request of this
    node (`is_response` False).
    """

    connection: int
    api_key: int
    api_version: int
    correlation_id: int
    is_response: bool
    reason: str
    action: str


class TlsHandshakeFailed(Event):
    """A TLS handshake on a listener failed: no connection was opened. `reason` is OpenSSL's."""

    listener: str
    reason: str


class FrameReceived(Event):
    """A whole frame arrived. On a client side it is a response (`is_response`)."""

    connection: int
    peer: str
    api_key: int
    api_version: int
    correlation_id: int
    is_response: bool
    size_bytes: int
    link: str = ""


class FrameSent(Event):
    """A whole frame was written to the transport."""

    connection: int
    peer: str
    api_key: int
    api_version: int
    correlation_id: int
    is_response: bool
    size_bytes: int
    link: str = ""
