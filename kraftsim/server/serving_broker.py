"""What request handlers use of a broker, apart from the component of their concern: one protocol
per role.

A component declares a protocol of the brokers that have it in its own module. A handler that needs
several combines them in its file; that a broker has all of it is shown by
tests/node/test_handler_types.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.releases.release import Release
from kraftsim.server.call import Answer, Call
from kraftsim.server.config import NodeConfig
from kraftsim.server.shell import NodeShell
from kraftsim.world.interface import World
from protocol.api_keys import ApiKey


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The endpoint of a broker that clients connect to."""

    host: str
    port: int
    rack: str | None


class ImageBroker(Protocol):
    """A broker that looks up metadata."""

    @property
    def image(self) -> MetadataImage:
        """The current metadata image."""
        ...


class ConfiguredBroker(Protocol):
    """A broker whose properties matter."""

    @property
    def config(self) -> NodeConfig:
        """The properties of the node."""
        ...


class RunningBroker(Protocol):
    """A broker whose handler runs tasks, reads the clock or emits events."""

    @property
    def world(self) -> World:
        """Clock, random numbers and event log."""
        ...

    @property
    def shell(self) -> NodeShell:
        """Tasks, turns and security of the node."""
        ...


class AddressBroker(Protocol):
    """A broker that reports the addresses of others."""

    def is_alive(self, broker_id: int) -> bool:
        """Return whether a broker is registered and unfenced."""
        ...

    def address_of(self, broker_id: int, listener: str) -> BrokerAddress | None:
        """Return the address of an unfenced broker on a listener; None if there is none."""
        ...


class ReleaseParts(Protocol):
    """The replaceable classes of a node, of which a handler needs the release."""

    @property
    def release(self) -> Release:
        """The emulated release."""
        ...


class ReleaseBroker(Protocol):
    """A broker whose release decides what is answered."""

    @property
    def parts(self) -> ReleaseParts:
        """The replaceable classes of the node."""
        ...


class TelemetryReporter(Protocol):
    """The reporter of client metrics of a broker (KIP-714)."""

    @property
    def apis(self) -> Mapping[ApiKey, tuple[int, int]]:
        """The APIs that a broker with a reporter has, and their versions."""
        ...

    def on_api_versions(self, connection: int, name: str, version: str) -> None:
        """A client has said which software it is."""
        ...

    def on_disconnect(self, connection: int) -> None:
        """A connection is closed."""
        ...

    def subscription(self, call: Call) -> Answer:
        """Answer GetTelemetrySubscriptions."""
        ...

    def push(self, call: Call) -> Answer:
        """Answer PushTelemetry."""
        ...


class TelemetryBroker(Protocol):
    """A broker that may have a reporter of client metrics."""

    @property
    def telemetry(self) -> TelemetryReporter | None:
        """The reporter; None: the broker has none, and does not offer its APIs."""
        ...
