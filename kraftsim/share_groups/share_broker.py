"""What the handlers of ShareFetch and ShareAcknowledge use of their broker. What serves them is
loaded with the first of these requests: few brokers get any.
"""

from typing import Protocol

from kraftsim.server.call import Allows, Answer, Call, Deferred


class ServedShareRequests(Protocol):
    """The leader's side of share groups."""

    def fetch(self, call: Call, allows: Allows | None) -> Answer | Deferred:
        """Serve a ShareFetch; `allows(name)`: whether the client may read a topic."""
        ...

    def acknowledge(self, call: Call, allows: Allows | None) -> Answer | Deferred:
        """Serve a ShareAcknowledge."""
        ...


class ShareBroker(Protocol):
    """A broker that serves members of share groups."""

    @property
    def share_requests(self) -> ServedShareRequests:
        """Serves them."""
        ...
