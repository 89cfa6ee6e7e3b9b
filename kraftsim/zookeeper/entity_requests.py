"""Requests that a broker in ZooKeeper mode serves by writing znodes itself: configs, quotas, ACLs,
and (as the controller) SCRAM credentials.

The validation is that of KRaft, applied to the current content of ZooKeeper. The result is written
to the entity's znode, and a notification znode makes all brokers read it.
Source: kafka.zk.AdminZkClient, kafka.server.{ZkAdminManager, ConfigAdminManager},
kafka.security.authorizer.AclAuthorizer.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from kraftsim.core.decision import Decision
from kraftsim.metadata.controller_handlers import configs, quotas_and_credentials
from kraftsim.metadata.metadata_writer import AppendedOffsets
from kraftsim.metadata.rules_controller_state import ControllerState
from kraftsim.metadata.rules_image import MetadataImage, snapshot_records
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.config import NodeConfig
from kraftsim.server.controller_handlers import security
from kraftsim.server.large_requests import or_refused
from kraftsim.server.shell import NodeShell
from kraftsim.server.with_rules import RulesController, RulesParts
from kraftsim.world.interface import World
from kraftsim.zookeeper.client import ZookeeperClient, ZookeeperRefused
from kraftsim.zookeeper.rules_partitions import StateView
from kraftsim.zookeeper.rules_znode_writes import (
    Touched,
    WriteKind,
    ZnodeOperation,
    ZnodeWrite,
    acls_changed,
    config_changed,
    quota_changed,
)
from kraftsim.zookeeper.rules_znodes import acl_records, config_entity, entity_changes, quota_path
from kraftsim.zookeeper.znode_writer import ZnodeReader, create_above, expanded, requests_of
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k33_alter_configs import AlterConfigsRequest
from protocol.messages.k44_incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.k49_alter_client_quotas import AlterClientQuotasRequest
from protocol.messages.k51_alter_user_scram_credentials import AlterUserScramCredentialsRequest
from protocol.metadata.security import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from protocol.schema import Message
from protocol.zookeeper.kafka_access_znodes import ACLS, EXTENDED_ACLS, sanitized
from protocol.zookeeper.kafka_znodes import CONFIG, build_config, parse_config
from protocol.zookeeper.op_codes import ZookeeperError

T = TypeVar("T")
ID_BYTES = 16


class EntityController(Protocol):
    """The controller component of a broker; the broker writes entities also if it is not the active
    controller.
    """

    @property
    def world(self) -> World:
        """Clock, random numbers and event log."""
        ...

    @property
    def config(self) -> NodeConfig:
        """The properties of the node."""
        ...

    @property
    def shell(self) -> NodeShell:
        """Tasks and security of the node."""
        ...

    @property
    def parts(self) -> RulesParts:
        """The replaceable classes of the node."""
        ...

    @property
    def image(self) -> MetadataImage:
        """The metadata image of the broker."""
        ...

    @property
    def client(self) -> ZookeeperClient:
        """The client of the current session."""
        ...

    @property
    def entities(self) -> asyncio.Lock:
        """Held while an entity is read, decided and written."""
        ...

    def new_state(self) -> ControllerState:
        """Return an empty cluster state."""
        ...


def alter_configs(controller: EntityController, call: Call) -> Deferred:
    """Replace the configs of resources by the named ones."""
    asked = call.body
    assert isinstance(asked, AlterConfigsRequest), "dispatch decodes by API key"
    entities = [
        config_entity(each.resource_type, each.resource_name)
        for each in asked.resources
        if each.resource_type in (2, 4)
    ]
    return _written(controller, call, configs.ALTER_CONFIGS, entities)


def incremental_alter_configs(controller: EntityController, call: Call) -> Deferred:
    """Change individual configs."""
    asked = call.body
    assert isinstance(asked, IncrementalAlterConfigsRequest), "dispatch decodes by API key"
    entities = [
        config_entity(each.resource_type, each.resource_name)
        for each in asked.resources
        if each.resource_type in (2, 4)
    ]
    return _written(controller, call, configs.INCREMENTAL_ALTER_CONFIGS, entities)


def alter_client_quotas(controller: EntityController, call: Call) -> Deferred:
    """Change client quotas."""
    asked = call.body
    assert isinstance(asked, AlterClientQuotasRequest), "dispatch decodes by API key"
    kinds = ("user", "client-id", "ip")
    named = [
        tuple(sorted({part.entity_type: part.entity_name for part in entry.entity}.items()))
        for entry in asked.entries
    ]
    entities = [
        quota_path(entity)
        for entity in named
        if entity and all(kind in kinds for kind, _ in entity)
    ]
    return _written(controller, call, quotas_and_credentials.ALTER_CLIENT_QUOTAS, entities)


def alter_user_scram_credentials(controller: EntityController, call: Call) -> Deferred:
    """Upsert or delete SCRAM credentials."""
    asked = call.body
    assert isinstance(asked, AlterUserScramCredentialsRequest), "dispatch decodes by API key"
    names = [*(each.name for each in asked.deletions), *(each.name for each in asked.upsertions)]
    return _written(
        controller,
        call,
        quotas_and_credentials.ALTER_USER_SCRAM_CREDENTIALS,
        [f"users/{sanitized(name)}" for name in names if name],
    )


def create_acls(controller: EntityController, call: Call) -> Deferred:
    """Create ACLs."""
    return _written(controller, call, security.CREATE_ACLS, [], has_rules=True)


def delete_acls(controller: EntityController, call: Call) -> Deferred:
    """Delete ACLs."""
    return _written(controller, call, security.DELETE_ACLS, [], has_rules=True)


def _written(
    controller: EntityController,
    call: Call,
    handler: Handler[RulesController],
    entities: Sequence[str | None],
    *,
    has_rules: bool = False,
) -> Deferred:
    later, refuse = Deferred(), handler.refuse
    assert refuse is not None, "what is written can be refused"
    work = EntityRequestHandler(controller, has_rules=has_rules).serve(
        call, handler, [entity for entity in entities if entity is not None], later
    )
    controller.shell.tasks.spawn(or_refused(work, later, call, refuse), "entity-request")
    return later


class EntityRequestHandler:
    """Offers the subset of the controller interface that entity handlers need; writes without being
    the controller.
    """

    def __init__(self, controller: EntityController, *, has_rules: bool) -> None:
        self.world = controller.world
        self.config = controller.config
        self.shell = controller.shell
        self.parts = controller.parts
        self.is_active = True
        self.metadata_writer = EntityWriter(controller.new_state())
        self._controller = controller
        self._has_rules = has_rules

    async def serve(
        self,
        call: Call,
        handler: Handler[RulesController],
        entities: Sequence[str],
        later: Deferred,
    ) -> None:
        """Read the entities, decide, write, answer."""
        refuse = handler.refuse
        assert refuse is not None, "what is written can be refused"
        async with self._controller.entities:
            try:
                await self._read(entities)
                answer = handler.handle(self, call)
                await self._write()
            except (ZookeeperRefused, MalformedMessage):
                later.complete(refuse(call, ErrorCode.UNKNOWN_SERVER_ERROR))
                return
        while isinstance(answer, Deferred):
            assert answer.answer is not None, "every write is answered"
            answer = answer.answer
        later.complete(answer)

    async def _read(self, entities: Sequence[str]) -> None:
        """Load the broker's image, with some entities re-read from ZooKeeper."""
        image, state = self._controller.image, self.metadata_writer.state
        reader = ZnodeReader(self._controller.client)
        kept = [
            record
            for record in snapshot_records(image)
            if not (self._has_rules and isinstance(record, AccessControlEntryRecord))
        ]
        found = await reader.some([f"{CONFIG}/{entity}" for entity in dict.fromkeys(entities)])
        for entity in dict.fromkeys(entities):
            data, _ = found.get(f"{CONFIG}/{entity}", (None, None))
            kept += entity_changes(entity, data, image)
        if self._has_rules:
            rules = {**await reader.tree(ACLS), **await reader.tree(EXTENDED_ACLS)}
            drawn = self.world.random("access rules")
            kept += [
                record
                for piece in acl_records(rules, lambda: drawn.randbytes(ID_BYTES))
                for record in piece
            ]
        for offset, record in enumerate(kept):
            state.replay(record, offset)
        self.metadata_writer.next_offset = len(kept)
        state.commit_through(len(kept))

    async def _write(self) -> None:
        """Write the decided changes, and notify all brokers."""
        client = self._controller.client
        for operation in self.metadata_writer.operations():
            for write in operation.writes:
                if await self._is_cleaned(write):
                    continue
                for request in requests_of(write):
                    try:
                        await client.multi([request])
                        break
                    except ZookeeperRefused as refused:
                        if refused.error != ZookeeperError.NO_NODE:
                            raise
                        await create_above(client, write.path)
            if operation.notification is not None:
                await create_above(client, operation.notification.path)
                await client.multi(requests_of(operation.notification))

    async def _is_cleaned(self, write: ZnodeWrite) -> bool:
        """Delete an entity without quotas and children, and its empty ancestors; return whether
        that was done.
        """
        is_quota = write.path.startswith(
            tuple(f"{CONFIG}/{kind}/" for kind in ("users", "clients", "ips"))
        )
        if write.data != build_config({}) or not is_quota or await self._names(write.path):
            return False
        gone, (parent, _, client_id) = write.path, write.path.rpartition("/")
        if (
            parent.endswith("/clients")
            and parent != f"{CONFIG}/clients"
            and await self._names(parent) in ([client_id], [])
        ):
            user = parent.removesuffix("/clients")
            found = await ZnodeReader(self._controller.client).some([user])
            has_quotas = user in found and bool(parse_config(found[user][0] or build_config({})))
            gone = parent if has_quotas or await self._names(user) != ["clients"] else user
        for each in await expanded(
            self._controller.client, ZnodeWrite(kind=WriteKind.DELETE_TREE, path=gone)
        ):
            try:
                await self._controller.client.delete(each.path)
            except ZookeeperRefused as refused:
                if refused.error != ZookeeperError.NO_NODE:
                    raise
        return True

    async def _names(self, path: str) -> list[str]:
        return (await ZnodeReader(self._controller.client).names_below([path]))[0][1]


class EntityWriter:
    """Implements the metadata writer interface for entities; committed records are kept until
    they are written.
    """

    def __init__(self, state: ControllerState) -> None:
        self.state = state
        self.refuse: Callable[[ErrorCode], Answer] | None = None
        self.next_offset = 0
        self._facts = StateView(state)
        self._touched = Touched()

    def commit(
        self,
        decision: Decision[T],
        build_answer: Callable[[AppendedOffsets | None], Answer],
        *,
        is_atomic: bool = True,
    ) -> Answer:
        """Replay a decision, and answer."""
        for record in decision.records:
            self._add_operation(record)
            self.state.replay(record, self.next_offset)
            self.next_offset += 1
        return build_answer(AppendedOffsets(first_offset=0, last_offset=0))

    def operations(self) -> list[ZnodeOperation]:
        """Return the pending znode operations."""
        touched = self._touched
        found = [
            each
            for resource in touched.configs
            if (each := config_changed(*resource, self._facts)) is not None
        ]
        found += [quota_changed(entity, self._facts) for entity in touched.quotas]
        return [*found, *(acls_changed(resource, self._facts) for resource in touched.access)]

    def _add_operation(self, record: Message) -> None:
        assert (
            not isinstance(record, RemoveAccessControlEntryRecord)
            or self.state.registries.access_rules.get(record.id) is not None
        )
        self._touched.emit(record, self._facts)
