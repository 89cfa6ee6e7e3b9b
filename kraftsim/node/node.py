"""What every node can be told to do, whatever its role and whichever world it lives in."""

from collections.abc import Mapping
from typing import Protocol

from kraftsim.node.endpoints import Endpoint


class Node(Protocol):
    """A broker or a controller. `start` once, then `stop` or `abort` once; a node that came down is not started again."""

    @property
    def addresses(self) -> Mapping[str, Endpoint]:
        """Listener name -> where it listens; empty before `start` returned."""
        ...

    async def start(self) -> None:
        """Load what is on disk and open the listeners. Raises ConfigError, OSError kinds; then nothing is left open."""
        ...

    async def ready(self) -> None:
        """Wait until the node serves its clients: a broker is unfenced, a controller leads or follows. Raises what it failed with before."""
        ...

    async def failed(self) -> BaseException:
        """Wait until the node fails, and return why; a node in good order never does."""
        ...

    async def stop(self) -> None:
        """Go down in good order: hand over, answer what is under way, flush, mark the logs as clean."""
        ...

    def abort(self) -> None:
        """Go down at once, as a process that is killed: no flush, no clean-shutdown marker, no word."""
        ...
