"""The lifecycle interface of nodes, for every role, in simulated and real time."""

from collections.abc import Mapping
from typing import Protocol

from kraftsim.server.endpoints import ListenerEndpoint


class Node(Protocol):
    """A broker or a controller.

    Call `start` once, then `stop` or `abort` once; a stopped node is not restarted.
    """

    @property
    def addresses(self) -> Mapping[str, ListenerEndpoint]:
        """Listener name -> bound endpoint; empty before `start` returned."""
        ...

    async def start(self) -> None:
        """Recover the disk and open the listeners.

        Raises ConfigError, OSError kinds; then nothing is left open.
        """
        ...

    async def ready(self) -> None:
        """Wait until the node serves clients: a broker is unfenced, a controller is leader or
        follower. Raises the node's earlier failure.
        """
        ...

    async def failed(self) -> BaseException:
        """Wait until the node fails, and return the reason; a healthy node never does."""
        ...

    async def stop(self) -> None:
        """Shut down cleanly: hand over leadership, answer pending requests, flush, and mark the
        logs as clean.
        """
        ...

    def abort(self) -> None:
        """Stop immediately, as a killed process would: no flush, no clean-shutdown marker, no
        requests to other nodes.
        """
        ...
