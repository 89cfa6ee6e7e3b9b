"""The common base of brokers and controllers: tasks, listeners, connection numbers, and the failure
path.

An `AssertionError` anywhere means that the node's state is wrong; it must stop, because every
further response could be wrong.
"""

import asyncio
from collections.abc import Callable

from kraftsim.server.config import NodeConfig
from kraftsim.server.events import DiskFailed, NodeFailed, NodeStarted, NodeStopped
from kraftsim.server.security.node_security import NodeSecurity
from kraftsim.server.slices import Turns
from kraftsim.server.tasks import NodeTasks
from kraftsim.world.interface import World


class NodeShell:
    """The runtime of a node.

    `on_failure` stops everything immediately and may be called once, from anywhere.
    """

    def __init__(self, world: World, config: NodeConfig, on_failure: Callable[[], None]) -> None:
        self.world = world
        self.config = config
        self.tasks = NodeTasks(self.fail)
        self.turns = Turns()
        self.security = NodeSecurity(config, lambda purpose: world.random(purpose).getrandbits)
        self.is_dead = False
        self._on_death = on_failure
        self._connection_count = 0
        self._to_settle: list[Callable[[], None]] = []
        self.failure: BaseException | None = None
        """The exception that stopped the node."""
        self._failed: asyncio.Event | None = None

    def emit_started(self) -> None:
        """Emit the event of a started node."""
        self.world.emit(
            NodeStarted(
                role=self.config.role,
                node_id=self.config.node_id,
                release=self.config.release,
                cluster_id=self.config.cluster_id,
            )
        )

    def emit_stopped(self) -> None:
        """Emit the event of a node that stopped cleanly, as the last one."""
        self.world.emit(NodeStopped(reason="stopped"))
        self.world.flush_events()

    def next_connection_number(self) -> int:
        """Return the number of a new connection, inbound or outbound, unique in this
        incarnation.
        """
        self._connection_count += 1
        return self._connection_count

    def settle_soon(self, settle: Callable[[], None]) -> None:
        """Run `settle` in the next event-loop turn, together with all others of this turn, so that
        events are flushed once for all of them.
        """
        if not self._to_settle:
            asyncio.get_running_loop().call_soon(self._settle_all)
        self._to_settle.append(settle)

    def fail(self, mistake: BaseException) -> None:
        """Stop the node as a crash would: nothing more is answered, written or flushed, except the
        failure event.
        """
        if self.is_dead:
            return
        self.failure = mistake
        self.world.emit(NodeFailed(reason=f"{type(mistake).__name__}: {mistake}"))
        self.world.flush_events()
        self.die()
        if self._failed is not None:
            self._failed.set()

    def fail_disk(self, path: str, operation: str, refused: OSError) -> None:
        """Stop the node, as Kafka stops when its only log directory fails: after a failure the disk
        cannot be trusted.
        """
        self.world.emit(DiskFailed(path=path, operation=operation, reason=str(refused)))
        self.fail(
            OSError(refused.errno, f"{path}: {operation} failed: {refused.strerror or refused}")
        )

    def die(self) -> None:
        """Stop everything immediately, without an event."""
        if self.is_dead:
            return
        self.is_dead = True
        self._to_settle.clear()
        self.tasks.cancel()
        self._on_death()

    async def failed(self) -> BaseException:
        """Wait until the node has failed, and return the reason.

        Does not return for a healthy node.
        """
        if self.failure is None:
            if self._failed is None:
                self._failed = asyncio.Event()
            await self._failed.wait()
        assert self.failure is not None, "the event is set after the failure"
        return self.failure

    def _settle_all(self) -> None:
        waiting, self._to_settle = self._to_settle, []
        for settle in waiting:
            settle()


class PartShell(NodeShell):
    """The shell of one part of a combined node, which has tasks of its own.

    The node starts, fails and stops as a whole, and numbers the connections of all its parts: its
    event log has these facts once.
    """

    def __init__(self, whole: NodeShell, on_failure: Callable[[], None]) -> None:
        super().__init__(whole.world, whole.config, on_failure)
        self._whole = whole
        self.turns = whole.turns

    def emit_started(self) -> None:
        """The node has emitted that."""

    def emit_stopped(self) -> None:
        """The node emits that once all its parts have stopped."""

    def next_connection_number(self) -> int:
        """Return the number of a new connection, unique in this incarnation of the node."""
        return self._whole.next_connection_number()

    def fail(self, mistake: BaseException) -> None:
        """Stop the node with all its parts."""
        if not self.is_dead:
            self.failure = mistake
            self._whole.fail(mistake)
