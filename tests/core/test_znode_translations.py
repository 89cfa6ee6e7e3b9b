"""A cluster's metadata survives the round trip through znodes: records to writes, writes to a tree,
the tree to records.
"""

from random import Random

import pytest

from kraftsim.metadata.rules_image import MetadataImage, snapshot_records
from kraftsim.metadata.rules_registries import Registries
from kraftsim.zookeeper.rules_tree import ZnodeTree
from kraftsim.zookeeper.rules_znode_writes import (
    Touched,
    WriteKind,
    ZnodeOperation,
    ZnodeWrite,
    operations_of,
    sync_operations,
)
from kraftsim.zookeeper.rules_znodes import Znodes, records_of_znodes
from protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from protocol.metadata.controller import ProducerIdsRecord
from protocol.metadata.security import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from protocol.metadata.settings import ClientQuotaRecord, ConfigRecord, EntityData
from protocol.metadata.topics import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.schema import Message
from protocol.zookeeper.kafka_access_znodes import ACLS, DELEGATION_TOKENS, EXTENDED_ACLS
from protocol.zookeeper.kafka_znodes import PERSISTENT_PATHS
from protocol.zookeeper.op_codes import CreateMode
from protocol.zookeeper.txn_log import CreateTxn, DeleteTxn, SetDataTxn, TxnHeader

EPOCH = 7
NAMES = ("ann", "bob smith", "c@d/e~f*", None)
KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)


class WrittenTree:
    """A tree of znodes to which operations are applied as by a writer."""

    def __init__(self) -> None:
        self.tree = ZnodeTree()
        self._zxid = 0
        for path in (*PERSISTENT_PATHS, ACLS, EXTENDED_ACLS, DELEGATION_TOKENS):
            self._put(path, None)

    def carry_out(self, operations: list[ZnodeOperation]) -> None:
        for operation in operations:
            for write in operation.writes:
                self._write(write)
            assert (
                operation.notification is None
                or operation.notification.mode is CreateMode.PERSISTENT_SEQUENTIAL
            )

    def znodes(self) -> Znodes:
        return {path: (znode.data, znode.stat()) for path, znode in self.tree.znodes.items()}

    def _write(self, write: ZnodeWrite) -> None:
        there = self.tree.get(write.path)
        match write.kind:
            case WriteKind.CREATE:
                assert there is None, write.path
                self._put(write.path, write.data)
            case WriteKind.SET:
                assert there is not None, write.path
                self._put(write.path, write.data)
            case WriteKind.PUT:
                self._put(write.path, write.data)
            case WriteKind.DELETE_TREE:
                for path in sorted(self.tree.paths_below(write.path), reverse=True):
                    self._delete(path)
                self._delete(write.path)
            case WriteKind.DROP | WriteKind.DELETE:
                assert there is not None or write.kind is WriteKind.DROP
                if there is not None:
                    self._delete(write.path)

    def _put(self, path: str, data: bytes | None) -> None:
        self._zxid += 1
        there = self.tree.get(path)
        if there is not None:
            self.tree.replay(
                self._header(), SetDataTxn(path=path, data=data, version=there.version + 1)
            )
            return
        parent = path.rpartition("/")[0]
        if parent and self.tree.get(parent) is None:
            self._put(parent, None)
        self.tree.replay(
            self._header(),
            CreateTxn(path=path, data=data, acl=[], ephemeral=False, parent_cversion=0),
        )

    def _delete(self, path: str) -> None:
        self._zxid += 1
        self.tree.replay(self._header(), DeleteTxn(path=path))

    def _header(self) -> TxnHeader:
        return TxnHeader(client_id=1, cxid=1, zxid=self._zxid, time=1)


class RandomCluster:
    """A cluster with random changes."""

    def __init__(self, seed: int, *, first_producer_id: int = 0) -> None:
        self.rng = Random(seed)
        self.image = MetadataImage()
        self.topics: dict[bytes, tuple[str, int]] = {}
        self.rules: list[bytes] = []
        self._producer_id = first_producer_id

    def happening(self) -> list[Message]:
        return self.rng.choice(
            (
                self._topic,
                self._change,
                self._change,
                self._removal,
                self._config,
                self._quota,
                self._scram,
                self._ids,
                self._rule,
                self._token,
            )
        )()

    def _topic(self) -> list[Message]:
        topic_id, name = self.rng.randbytes(16), f"topic-{self.rng.randrange(1000)}"
        if any(name == known for known, _ in self.topics.values()):
            return []
        count = self.rng.randrange(1, 15)
        self.topics[topic_id] = (name, count)
        configs = [
            ConfigRecord(resource_type=2, resource_name=name, name=key, value="1")
            for key in self.rng.sample(("a.b", "retention.ms"), self.rng.randrange(3))
        ]
        return [
            TopicRecord(name=name, topic_id=topic_id),
            *configs,
            *(self._partition(topic_id, number) for number in range(count)),
        ]

    def _partition(self, topic_id: bytes, number: int) -> PartitionRecord:
        return PartitionRecord(
            topic_id=topic_id,
            partition_id=number,
            replicas=[1, 2, 3],
            isr=[1, 2],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        )

    def _change(self) -> list[Message]:
        if not self.topics:
            return []
        topic_id = self.rng.choice(list(self.topics))
        name, count = self.topics[topic_id]
        if self.rng.randrange(4) == 0:
            self.topics[topic_id] = (name, count + 1)
            return [self._partition(topic_id, count)]
        change = PartitionChangeRecord(
            topic_id=topic_id,
            partition_id=self.rng.randrange(count),
            leader=self.rng.choice((-1, 1, 2)),
            isr=[2, 1],
        )
        if self.rng.randrange(2):
            change.replicas, change.adding_replicas, change.removing_replicas = (
                [4, 1, 2, 3],
                [4],
                [3],
            )
        if self.rng.randrange(3) == 0:
            change.leader_recovery_state = self.rng.randrange(2)
        return [change]

    def _removal(self) -> list[Message]:
        if not self.topics or self.rng.randrange(2):
            return []
        topic_id = self.rng.choice(list(self.topics))
        del self.topics[topic_id]
        return [RemoveTopicRecord(topic_id=topic_id)]

    def _config(self) -> list[Message]:
        name = self.rng.choice(("", "1", "2"))
        return [
            ConfigRecord(
                resource_type=4,
                resource_name=name,
                name="log.cleaner.threads",
                value=self.rng.choice(("2", "3", None)),
            )
        ]

    def _quota(self) -> list[Message]:
        kinds = self.rng.choice((("user",), ("client-id",), ("client-id", "user"), ("ip",)))
        entity = [
            EntityData(
                entity_type=kind,
                entity_name="127.0.0.1" if kind == "ip" else self.rng.choice(NAMES),
            )
            for kind in kinds
        ]
        key = "connection_creation_rate" if kinds == ("ip",) else self.rng.choice(KEYS)
        return [
            ClientQuotaRecord(
                entity=entity,
                key=key,
                value=float(self.rng.choice((1, 1000, 20_000_000))),
                remove=self.rng.randrange(3) == 0,
            )
        ]

    def _scram(self) -> list[Message]:
        name, mechanism = self.rng.choice(("ann", "bob smith")), self.rng.choice((1, 2))
        if self.rng.randrange(3) == 0:
            return [RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)]
        return [
            UserScramCredentialRecord(
                name=name,
                mechanism=mechanism,
                salt=b"s",
                stored_key=b"k",
                server_key=b"v",
                iterations=4096,
            )
        ]

    def _ids(self) -> list[Message]:
        self._producer_id += 1000
        return [ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=self._producer_id)]

    def _rule(self) -> list[Message]:
        if self.rules and self.rng.randrange(3) == 0:
            return [RemoveAccessControlEntryRecord(id=self.rules.pop())]
        self.rules.append(self.rng.randbytes(16))
        return [
            AccessControlEntryRecord(
                id=self.rules[-1],
                resource_type=self.rng.choice(
                    (AclResourceType.TOPIC, AclResourceType.TRANSACTIONAL_ID)
                ),
                resource_name=self.rng.choice(("a", "b", "*")),
                pattern_type=self.rng.choice((AclPatternType.LITERAL, AclPatternType.PREFIXED)),
                principal=f"User:{self.rng.randrange(1000)}",
                host="*",
                operation=self.rng.choice((AclOperation.READ, AclOperation.IDEMPOTENT_WRITE)),
                permission_type=AclPermissionType.ALLOW,
            )
        ]

    def _token(self) -> list[Message]:
        token_id = self.rng.choice(("first", "second"))
        if self.rng.randrange(3) == 0:
            return [RemoveDelegationTokenRecord(token_id=token_id)]
        return [
            DelegationTokenRecord(
                owner="User:ann",
                requester="User:bob smith",
                renewers=["User:c"],
                issue_timestamp=1,
                max_timestamp=3,
                expiration_timestamp=2,
                token_id=token_id,
            )
        ]


def said(image: MetadataImage) -> list[str]:
    """Return the complete contents of an image, except what ZooKeeper stores differently: ids of
    ACLs, producer ids, partition epochs.
    """
    found = []
    for record in snapshot_records(image):
        match record:
            case AccessControlEntryRecord():
                record = AccessControlEntryRecord(
                    **{**{name: getattr(record, name) for name in ACL_FIELDS}, "id": bytes(16)}
                )
            case ProducerIdsRecord():
                continue
            case PartitionRecord():
                record.directories, record.partition_epoch = [], 0
            case ClientQuotaRecord():
                entity = sorted(record.entity, key=lambda part: part.entity_type)
                record = ClientQuotaRecord(entity=entity, key=record.key, value=record.value)
        found.append(repr(record))
    return sorted(found)


ACL_FIELDS = (
    "resource_type",
    "resource_name",
    "pattern_type",
    "principal",
    "host",
    "operation",
    "permission_type",
)


def assert_reads_as(znodes: Znodes, image: MetadataImage) -> None:
    """The producer id znode names the last allocated block: a migration continues behind it."""
    found = copied(znodes)
    assert said(found) == said(image)
    assert found.next_producer_id == (
        None if image.next_producer_id is None else image.next_producer_id + 1000
    )


def copied(znodes: Znodes) -> MetadataImage:
    image, rng, offset = MetadataImage(), Random(1), 0
    for records in records_of_znodes(znodes, lambda: rng.randbytes(16)):
        for record in records:
            image.replay(record, offset)
            offset += 1
    return image


@pytest.mark.parametrize("seed", range(40))
def test_incremental_writes_read_back_as_the_same_state(seed: int) -> None:
    history, tree, offset = RandomCluster(seed), WrittenTree(), 0
    for _ in range(60):
        touched = Touched()
        for record in [
            record for _ in range(history.rng.randrange(1, 4)) for record in history.happening()
        ]:
            touched.emit(record, history.image)
            history.image.replay(record, offset)
            offset += 1
        tree.carry_out(operations_of(touched, history.image, EPOCH))
    assert_reads_as(tree.znodes(), history.image)


@pytest.mark.parametrize("seed", range(20))
def test_synchronization_reads_back_and_repeats_with_few_writes(seed: int) -> None:
    """From any initial state.

    Quotas, credentials, tokens and producer ids are written each time.
    """
    other, history, tree = (
        RandomCluster(seed),
        RandomCluster(seed + 1000, first_producer_id=500_000),
        WrittenTree(),
    )
    for _ in range(60):
        for each in (other, history):
            for record in each.happening()[:1]:
                if not isinstance(
                    record,
                    TopicRecord | PartitionChangeRecord | PartitionRecord | RemoveTopicRecord,
                ):
                    each.image.replay(record, each.image.highest_offset + 1)
    for each in (other, history):
        each.topics.clear()
        for _ in range(5):
            for record in each._topic():
                each.image.replay(record, each.image.highest_offset + 1)
    tree.carry_out(sync_operations(tree.znodes(), other.image, EPOCH))
    assert_reads_as(tree.znodes(), other.image)
    if other.image.next_producer_id is not None and history.image.next_producer_id is None:
        history.image.replay(
            ProducerIdsRecord(next_producer_id=600_000), history.image.highest_offset + 1
        )
    tree.carry_out(sync_operations(tree.znodes(), history.image, EPOCH))
    assert_reads_as(tree.znodes(), history.image)
    again = {operation.name for operation in sync_operations(tree.znodes(), history.image, EPOCH)}
    assert again <= {"UpdateClientQuota", "UpdateDelegationToken", "UpdateProducerId"}


@pytest.mark.parametrize("seed", [1312, 1398, 1737])
def test_recreated_topic_is_present_with_its_config(seed: int) -> None:
    """In these histories both sides have a topic of one name, with different ids."""
    test_synchronization_reads_back_and_repeats_with_few_writes(seed)


def test_empty_registries_create_nothing() -> None:
    assert sync_operations(WrittenTree().znodes(), MetadataImage(), EPOCH) == []
    assert Registries(dict).quotas.records() == []
