"""The part of a broker that is the cluster's controller in ZooKeeper's time, or would be: whoever makes /controller first is it.

It resigns at once when its session is over, when /controller is somebody else's, or when a write is refused because /controller_epoch has moved; then
it looks again who is controller, and stands for it if nobody is. While a KRaft controller holds /controller nobody here can.
Source: kafka.controller.KafkaController (elect, maybeResign, processExpire), kafka.zk.KafkaZkClient.registerControllerAndIncrementControllerEpoch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from kraftsim.core.metadata.controller_state import ControllerState
from kraftsim.core.metadata.replication_view import TopicDefaults
from kraftsim.events.zookeeper_controllers import ZookeeperControllerElected, ZookeeperControllerResigned
from kraftsim.events.zookeeper_mode import ZnodeNotUnderstood
from kraftsim.node.call import Answer, Call, Deferred
from kraftsim.node.zookeeper.client import ZookeeperClient, ZookeeperRefused
from kraftsim.node.zookeeper_mode.controller_requests import answer_to
from kraftsim.node.zookeeper_mode.fenced_writes import FencedWrites
from kraftsim.node.zookeeper_mode.producer_id_blocks import ControllerBlocks
from kraftsim.node.zookeeper_mode.reign import Reign
from kraftsim.node.zookeeper_mode.znode_writer import ControllerMoved, create_request, set_request
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
    from kraftsim.node.zookeeper_mode.broker_mode import ZookeeperMode

NOBODY: Final = -1
RETRY_MS: Final = 100
LOWEST_LEVEL: Final = 11
"""The rules that are shared with KRaft look at its levels; below this one they would refuse what ZooKeeper has always kept (SCRAM credentials)."""
WATCHED: Final = {
    BROKER_IDS: "brokers",
    TOPICS: "topics",
    DELETE_TOPICS: "deletions",
    ISR_CHANGES: "isr-changes",
    LOG_DIRECTORY_EVENTS: "directories",
    REASSIGN_PARTITIONS: "reassignments",
    PREFERRED_REPLICA_ELECTION: "preferred",
}
"""Path -> what is to be looked at."""
RETURNABLE: Final = (ZookeeperError.NODE_EXISTS, ZookeeperError.BAD_VERSION, ZookeeperError.NO_NODE)


class ZookeeperController:
    """`elect` once the broker has registered, and after each new session; `reign` is not None while this is the controller."""

    def __init__(self, mode: "ZookeeperMode") -> None:
        self.mode = mode
        self.shell = mode.shell
        self.world = mode.shell.world
        self.config = mode.shell.config
        self.protocol = mode.protocol
        self.controller_id = NOBODY
        """Who is controller, as /controller says."""
        self.reign: Reign | None = None
        self.entities = asyncio.Lock()
        """Held while an entity is read, decided upon and written."""
        self._is_electing = False
        self._looks_again = False
        self._is_over = False
        self._is_leaving = False
        mode.listen(self._on_event)

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it can know."""
        return self.reign is not None and self.reign.is_active

    @property
    def controller_epoch(self) -> int:
        """The epoch of the present reign; -1 where this broker has none."""
        return NOBODY if self.reign is None else self.reign.controller_epoch

    def handle(self, key: int, call: Call) -> Answer | Deferred:
        """Answer a request that a controller, or any broker, answers by writing to ZooKeeper."""
        return answer_to(self, key, call)

    def learned(self, records: Sequence[Message]) -> None:
        """Hear of configurations, quotas and access rules that this broker has read."""
        if self.reign is not None and self.reign.is_active:
            self.reign.learned(records)

    # Who is controller -----------------------------------------------------------------------------------------------------------------------------

    async def elect(self) -> None:
        """Look who is controller, and become it if nobody is; asked for again meanwhile, look again."""
        if self._is_electing:
            self._looks_again = True
            return
        self._is_electing = True
        try:
            while not self._is_over:
                self._looks_again = False
                try:
                    await self._look()
                except MalformedMessage as malformed:
                    self._not_understood(malformed)
                except ZookeeperRefused as refused:
                    if refused.error == ZookeeperError.SESSION_EXPIRED:
                        return  # the next session does it
                    self._looks_again = True
                    await asyncio.sleep(RETRY_MS / 1000)
                if not self._looks_again:
                    return
        finally:
            self._is_electing = False

    async def _look(self) -> None:
        """Look once. Raises ZookeeperRefused, and MalformedMessage: nobody is controller until the znode says something else.

        Source: ControllerZNode.decode (no id in what cannot be read), KafkaController.elect.
        """
        client = self.mode.client
        if await client.exists(CONTROLLER, watch=True) is not None:
            try:
                data, stat = await client.get(CONTROLLER, watch=True)
            except ZookeeperRefused as refused:
                if refused.error != ZookeeperError.NO_NODE:
                    raise
                self._looks_again = True
                return
            try:
                self.controller_id = ControllerZnode.parse(data or b"").broker_id
            except MalformedMessage:
                self._resign("nobody can tell who is controller")
                self.controller_id = NOBODY
                raise
            if self.reign is not None and (self.controller_id != self.config.node_id or stat.ephemeral_owner != self.reign.client.session):
                self._resign("somebody else is controller")
            elif self.reign is None and self.controller_id == self.config.node_id and stat.ephemeral_owner == client.session and not self._is_leaving:
                await self._take_up()  # made by a request whose connection was lost
            return
        self._resign("/controller is gone")
        self.controller_id = NOBODY
        if not self._is_leaving:
            await self._stand()

    async def _stand(self) -> None:
        """Make /controller and count /controller_epoch up, both or neither. Raises ZookeeperRefused, MalformedMessage."""
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
            broker_id=self.config.node_id, timestamp_ms=self.world.clock.wall_ms(), kraft_epoch=NOBODY if self.protocol.can_migrate else None
        )
        try:
            await client.multi(
                [create_request(CONTROLLER, znode.build(), CreateMode.EPHEMERAL), set_request(CONTROLLER_EPOCH, str(epoch).encode(), stat.version)]
            )
        except ZookeeperRefused as refused:
            if refused.error not in RETURNABLE:
                raise
            self._looks_again = True
            return
        self.controller_id = self.config.node_id
        await client.exists(CONTROLLER, watch=True)
        await self._reign(epoch, stat.version + 1)

    async def _take_up(self) -> None:
        """Begin the reign of an election of which it was not known how it ended. Raises ZookeeperRefused."""
        data, stat = await self.mode.client.get(CONTROLLER_EPOCH, watch=True)
        await self._reign(parse_controller_epoch(data), stat.version)

    async def _reign(self, epoch: int, epoch_version: int) -> None:
        self.world.note(ZookeeperControllerElected(controller_epoch=epoch))
        reign = self.reign = Reign(self, self.mode.client, controller_epoch=epoch, epoch_version=epoch_version)
        try:
            await reign.begin()
        except (ControllerMoved, MalformedMessage, ZookeeperRefused) as failure:
            if isinstance(failure, MalformedMessage):
                self._not_understood(failure)
            if self.reign is reign:
                await self._step_down(f"{type(failure).__name__}: {failure}")

    async def guarded(self, reign: Reign, work: Callable[[], Awaitable[None]]) -> None:
        """Do a piece of work of a reign; resign if it turns out that it is over."""
        try:
            await work()
        except (ControllerMoved, MalformedMessage, ZookeeperRefused) as failure:
            if self.reign is not reign or self._is_over:
                return
            if isinstance(failure, MalformedMessage):
                self._not_understood(failure)
            self.shell.tasks.spawn(self._step_down(f"{type(failure).__name__}: {failure}"), "controller-resignation")

    async def _step_down(self, reason: str) -> None:
        """Resign, give /controller back if it is still this broker's, and look who is controller."""
        reign = self.reign
        self._resign(reason)
        if reign is not None and not self._is_over:
            try:
                _, stat = await reign.client.get(CONTROLLER)
                if stat.ephemeral_owner == reign.client.session:
                    await asyncio.sleep(RETRY_MS / 1000)
                    await reign.client.delete(CONTROLLER, stat.version)
            except ZookeeperRefused:
                pass  # somebody else's, or the session's end takes it
            await self.elect()

    def _not_understood(self, malformed: MalformedMessage) -> None:
        self.world.note(ZnodeNotUnderstood(path=malformed.path, reason=malformed.reason))

    def _resign(self, reason: str) -> None:
        reign, self.reign = self.reign, None
        if reign is not None:
            self.world.note(ZookeeperControllerResigned(controller_epoch=reign.controller_epoch, reason=reason))
            reign.end()

    def _on_event(self, event_type: EventType, path: str) -> None:
        if self._is_over:
            return
        if path == CONTROLLER or (path == CONTROLLER_EPOCH and self.reign is None):
            self.shell.tasks.spawn(self.elect(), "controller-election")
        elif self.reign is not None:
            if path in WATCHED:
                self.reign.has_happened(WATCHED[path])
            elif path.startswith(f"{BROKER_IDS}/") and event_type == EventType.NODE_DATA_CHANGED:
                self.reign.has_happened("broker", path.removeprefix(f"{BROKER_IDS}/"))
            elif path.startswith(f"{TOPICS}/") and event_type == EventType.NODE_DATA_CHANGED:
                self.reign.has_happened("topic", path.removeprefix(f"{TOPICS}/").partition("/")[0])

    # The end ---------------------------------------------------------------------------------------------------------------------------------------

    def on_session_lost(self) -> None:
        """Resign at once: somebody else may be controller by now."""
        self.controller_id = NOBODY
        self._resign("the session is over")

    def stand_no_more(self) -> None:
        """The broker is about to stop: who is controller goes on telling brokers what they must know, but does not become it any more.

        Source: KafkaServer.shutdown ends the controller behind the log manager.
        """
        self._is_leaving = True

    async def stop(self) -> None:
        """Resign in good order."""
        self._is_over = True
        self._resign("stopping")

    def abort(self) -> None:
        """Let go at once, as a process that dies."""
        self._is_over = True
        if self.reign is not None:
            self.reign.abort()

    # What a reign is made of -----------------------------------------------------------------------------------------------------------------------

    def new_blocks(self, client: ZookeeperClient, writes: FencedWrites) -> ControllerBlocks:
        """Return what takes blocks of producer ids in a reign."""
        return self.mode.broker.parts.controller_blocks(client, writes)

    def new_state(self) -> ControllerState:
        """Return the state of a cluster of which nothing is known."""
        config, parts = self.config, self.mode.broker.parts
        return parts.controller_state(
            cluster_id=config.cluster_id,
            session_timeout_ms=config.broker_session_timeout_ms,
            metadata_version=max(self.protocol.level, LOWEST_LEVEL),
            topic_defaults=TopicDefaults(num_partitions=config.num_partitions, replication_factor=config.default_replication_factor),
            node=parts.controller_node(config),
        )
