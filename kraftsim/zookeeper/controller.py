"""The controller component of a broker in ZooKeeper mode: the broker that creates /controller first
is the active controller.

It resigns immediately when its session expires, when another broker owns /controller, or when a
write is refused because /controller_epoch has changed. Then it reads /controller again, and stands
for election if there is no controller. While a KRaft controller holds /controller, no broker can be
elected.
Source: kafka.controller.KafkaController (elect, maybeResign, processExpire),
kafka.zk.KafkaZkClient.registerControllerAndIncrementControllerEpoch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from kraftsim.metadata.rules_controller_state import ControllerState
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_partitions import TopicDefaults
from kraftsim.producer_ids.zookeeper import ControllerBlocks
from kraftsim.server.call import Answer, Call, Deferred
from kraftsim.zookeeper.client import ZookeeperClient, ZookeeperRefused
from kraftsim.zookeeper.controller_context import ControllerContext
from kraftsim.zookeeper.controller_requests import answer_to
from kraftsim.zookeeper.events import (
    ZnodeNotUnderstood,
    ZookeeperControllerElected,
    ZookeeperControllerResigned,
)
from kraftsim.zookeeper.znode_writer import (
    ControllerMoved,
    FencedWrites,
    create_request,
    set_request,
)
from protocol.malformed import MalformedMessage
from protocol.schema import Message
from protocol.zookeeper.kafka_znodes import (
    BROKER_IDS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    INITIAL_CONTROLLER_EPOCH,
    ISR_CHANGES,
    LOG_DIRECTORY_EVENTS,
    PREFERRED_REPLICA_ELECTION,
    REASSIGN_PARTITIONS,
    TOPICS,
    ControllerZnode,
    parse_controller_epoch,
)
from protocol.zookeeper.op_codes import CreateMode, EventType, ZookeeperError

if TYPE_CHECKING:
    from kraftsim.zookeeper.broker_mode import ZookeeperMode, ZookeeperParts

NO_CONTROLLER: Final = -1
RETRY_MS: Final = 100
LOWEST_LEVEL: Final = 11
"""Metadata version for the validation rules shared with KRaft; a lower one would reject what
ZooKeeper has always kept (SCRAM credentials).
"""
WATCHED: Final = {
    BROKER_IDS: "brokers",
    TOPICS: "topics",
    DELETE_TOPICS: "deletions",
    ISR_CHANGES: "isr-changes",
    LOG_DIRECTORY_EVENTS: "directories",
    REASSIGN_PARTITIONS: "reassignments",
    PREFERRED_REPLICA_ELECTION: "preferred",
}
"""Path -> name of the event to process."""
RETURNABLE: Final = (ZookeeperError.NODE_EXISTS, ZookeeperError.BAD_VERSION, ZookeeperError.NO_NODE)


class ZookeeperController:
    """`elect` is called once the broker has registered, and after each new session; `context` is
    not None while this broker is the active controller.
    """

    def __init__(self, mode: "ZookeeperMode") -> None:
        self.mode = mode
        self.shell = mode.shell
        self.world = mode.shell.world
        self.config = mode.shell.config
        self.protocol = mode.protocol
        self.controller_id = NO_CONTROLLER
        """The controller id according to /controller."""
        self.context: ControllerContext | None = None
        self.entities = asyncio.Lock()
        """Held while an entity is read, decided and written."""
        self._is_electing = False
        self._must_check_again = False
        self._is_over = False
        self._is_leaving = False
        mode.listen(self._on_event)

    @property
    def is_active(self) -> bool:
        """Whether this broker is the active controller, to its own knowledge."""
        return self.context is not None and self.context.is_active

    @property
    def client(self) -> ZookeeperClient:
        """The client of the current session."""
        return self.mode.client

    @property
    def image(self) -> MetadataImage:
        """The metadata image of the broker."""
        return self.mode.image

    @property
    def parts(self) -> "ZookeeperParts":
        """The replaceable classes of the node."""
        return self.mode.broker.parts

    @property
    def controller_epoch(self) -> int:
        """The epoch of this controller; -1 if this broker is not the controller."""
        return NO_CONTROLLER if self.context is None else self.context.controller_epoch

    def handle(self, key: int, call: Call) -> Answer | Deferred:
        """Handle a request that the controller, or any broker, serves by writing to ZooKeeper."""
        return answer_to(self, key, call)

    def learned(self, records: Sequence[Message]) -> None:
        """Apply configs, quotas and ACLs that this broker has read."""
        if self.context is not None and self.context.is_active:
            self.context.learned(records)

    # Election
    # ----------------------------------------------------------------------------------------------

    async def elect(self) -> None:
        """Read /controller and stand for election if it is absent.

        A call during a running election makes it check again.
        """
        if self._is_electing:
            self._must_check_again = True
            return
        self._is_electing = True
        try:
            while not self._is_over:
                self._must_check_again = False
                try:
                    await self._check_controller()
                except MalformedMessage as malformed:
                    self._not_understood(malformed)
                except ZookeeperRefused as refused:
                    if refused.error == ZookeeperError.SESSION_EXPIRED:
                        return  # retried in the next session
                    self._must_check_again = True
                    await asyncio.sleep(RETRY_MS / 1000)
                if not self._must_check_again:
                    return
        finally:
            self._is_electing = False

    async def _check_controller(self) -> None:
        """Read /controller once.

        Raises ZookeeperRefused, and MalformedMessage: there is no controller until the znode
        changes.

        Source: ControllerZNode.decode (no id in a malformed znode), KafkaController.elect.
        """
        client = self.mode.client
        if await client.exists(CONTROLLER, watch=True) is not None:
            try:
                data, stat = await client.get(CONTROLLER, watch=True)
            except ZookeeperRefused as refused:
                if refused.error != ZookeeperError.NO_NODE:
                    raise
                self._must_check_again = True
                return
            try:
                self.controller_id = ControllerZnode.parse(data or b"").broker_id
            except MalformedMessage:
                self._resign("/controller is malformed")
                self.controller_id = NO_CONTROLLER
                raise
            if self.context is not None and (
                self.controller_id != self.config.node_id
                or stat.ephemeral_owner != self.context.client.session
            ):
                self._resign("another controller was elected")
            elif (
                self.context is None
                and self.controller_id == self.config.node_id
                and stat.ephemeral_owner == client.session
                and not self._is_leaving
            ):
                await self._resume_election()  # created by a request whose connection was lost
            return
        self._resign("/controller was deleted")
        self.controller_id = NO_CONTROLLER
        if not self._is_leaving:
            await self._stand_for_election()

    async def _stand_for_election(self) -> None:
        """Create /controller and increment /controller_epoch in one multi.

        Raises ZookeeperRefused, MalformedMessage.
        """
        client = self.mode.client
        if await client.exists(CONTROLLER_EPOCH) is None:
            try:
                await client.create(CONTROLLER_EPOCH, str(INITIAL_CONTROLLER_EPOCH).encode())
            except ZookeeperRefused as refused:
                if refused.error != ZookeeperError.NODE_EXISTS:
                    raise
        data, stat = await client.get(CONTROLLER_EPOCH, watch=True)
        epoch = parse_controller_epoch(data) + 1
        znode = ControllerZnode(
            broker_id=self.config.node_id,
            timestamp_ms=self.world.clock.wall_ms(),
            kraft_epoch=NO_CONTROLLER if self.protocol.can_migrate else None,
        )
        try:
            await client.multi(
                [
                    create_request(CONTROLLER, znode.build(), CreateMode.EPHEMERAL),
                    set_request(CONTROLLER_EPOCH, str(epoch).encode(), stat.version),
                ]
            )
        except ZookeeperRefused as refused:
            if refused.error not in RETURNABLE:
                raise
            self._must_check_again = True
            return
        self.controller_id = self.config.node_id
        await client.exists(CONTROLLER, watch=True)
        await self._activate(epoch, stat.version + 1)

    async def _resume_election(self) -> None:
        """Start acting as controller after an election whose outcome was unknown.

        Raises ZookeeperRefused.
        """
        data, stat = await self.mode.client.get(CONTROLLER_EPOCH, watch=True)
        await self._activate(parse_controller_epoch(data), stat.version)

    async def _activate(self, epoch: int, epoch_version: int) -> None:
        self.world.emit(ZookeeperControllerElected(controller_epoch=epoch))
        context = self.context = ControllerContext(
            self, self.mode.client, controller_epoch=epoch, epoch_version=epoch_version
        )
        try:
            await context.begin()
        except (ControllerMoved, MalformedMessage, ZookeeperRefused) as failure:
            if isinstance(failure, MalformedMessage):
                self._not_understood(failure)
            if self.context is context:
                await self._step_down(f"{type(failure).__name__}: {failure}")

    async def guarded(
        self, context: ControllerContext, work: Callable[[], Awaitable[None]]
    ) -> None:
        """Run work of the active controller; resign if another controller was elected meanwhile."""
        try:
            await work()
        except (ControllerMoved, MalformedMessage, ZookeeperRefused) as failure:
            if self.context is not context or self._is_over:
                return
            if isinstance(failure, MalformedMessage):
                self._not_understood(failure)
            self.shell.tasks.spawn(
                self._step_down(f"{type(failure).__name__}: {failure}"), "controller-resignation"
            )

    async def _step_down(self, reason: str) -> None:
        """Resign, delete /controller if this broker still owns it, and check for a controller."""
        context = self.context
        self._resign(reason)
        if context is not None and not self._is_over:
            try:
                _, stat = await context.client.get(CONTROLLER)
                if stat.ephemeral_owner == context.client.session:
                    await asyncio.sleep(RETRY_MS / 1000)
                    await context.client.delete(CONTROLLER, stat.version)
            except ZookeeperRefused:
                pass  # owned by another broker, or deleted when the session expires
            await self.elect()

    def _not_understood(self, malformed: MalformedMessage) -> None:
        self.world.emit(ZnodeNotUnderstood(path=malformed.path, reason=malformed.reason))

    def _resign(self, reason: str) -> None:
        context, self.context = self.context, None
        if context is not None:
            self.world.emit(
                ZookeeperControllerResigned(
                    controller_epoch=context.controller_epoch, reason=reason
                )
            )
            context.end()

    def _on_event(self, event_type: EventType, path: str) -> None:
        if self._is_over:
            return
        if path == CONTROLLER or (path == CONTROLLER_EPOCH and self.context is None):
            self.shell.tasks.spawn(self.elect(), "controller-election")
        elif self.context is not None:
            if path in WATCHED:
                self.context.queue_event(WATCHED[path])
            elif path.startswith(f"{BROKER_IDS}/") and event_type == EventType.NODE_DATA_CHANGED:
                self.context.queue_event("broker", path.removeprefix(f"{BROKER_IDS}/"))
            elif path.startswith(f"{TOPICS}/") and event_type == EventType.NODE_DATA_CHANGED:
                self.context.queue_event("topic", path.removeprefix(f"{TOPICS}/").partition("/")[0])

    # Shutdown
    # ----------------------------------------------------------------------------------------------

    def on_session_lost(self) -> None:
        """Resign immediately: another controller may have been elected."""
        self.controller_id = NO_CONTROLLER
        self._resign("the session expired")

    def stop_standing(self) -> None:
        """Do not stand for election again: the broker is about to stop.

        An active controller continues to notify brokers.

        Source: KafkaServer.shutdown stops the controller after the log manager.
        """
        self._is_leaving = True

    async def stop(self) -> None:
        """Resign, and delete /controller."""
        self._is_over = True
        self._resign("stopping")

    def abort(self) -> None:
        """Release everything immediately, as a killed process would."""
        self._is_over = True
        if self.context is not None:
            self.context.abort()

    # Parts of the active controller
    # ----------------------------------------------------------------------------------------------

    def new_blocks(self, client: ZookeeperClient, writes: FencedWrites) -> ControllerBlocks:
        """Return the allocator of producer-id blocks of one controller epoch."""
        return self.parts.controller_blocks(client, writes)

    def new_state(self) -> ControllerState:
        """Return an empty cluster state."""
        config, parts = self.config, self.parts
        return parts.controller_state(
            cluster_id=config.cluster_id,
            session_timeout_ms=config.broker_session_timeout_ms,
            metadata_version=max(self.protocol.level, LOWEST_LEVEL),
            topic_defaults=TopicDefaults(
                num_partitions=config.num_partitions,
                replication_factor=config.default_replication_factor,
            ),
            node=parts.controller_node(config),
        )
