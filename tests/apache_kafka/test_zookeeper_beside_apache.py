"""The same requests to Apache ZooKeeper and to ours: the same responses, zxids and watch events,
and each reads the files of the other.
"""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kraftsim.world.real.world import real_world
from kraftsim.zookeeper.client import SessionState, ZookeeperClient, ZookeeperRefused
from protocol.schema import Message
from protocol.zookeeper.op_codes import CreateMode, EventType, OpCode, Permission
from protocol.zookeeper.znodes import (
    WRITES,
    AclEntry,
    AddWatchRequest,
    AuthPacket,
    Create2Response,
    CreateRequest,
    CreateTtlRequest,
    GetAclResponse,
    GetChildren2Response,
    GetChildrenResponse,
    GetDataResponse,
    PathAndWatchKind,
    PathOnly,
    SetAclRequest,
    SetDataRequest,
    StatResponse,
    VersionedPath,
    WatchedPath,
    build_multi,
)
from tests.apache_kafka.zookeeper import ApacheZookeeper
from tests.node.raw_zookeeper_client import ZooKeeperClient, ZooKeeperResponse, word
from tests.node.zookeeper_server import running_zookeeper

pytestmark = pytest.mark.interop

REQUESTS = 3000
PATHS = (
    "/a",
    "/b",
    "/a/x",
    "/a/y",
    "/a/x/1",
    "/b/z",
    "/zookeeper",
    "/",
    "/a/",
    "a",
    "/a//x",
    "/./a",
    "",
    "/zookeeper/quota",
    "/c\u0001",
    "/größer",
)
OPEN = AclEntry(perms=31, scheme="world", id="anyone")
ACLS: tuple[list[AclEntry], ...] = (
    [OPEN],
    [OPEN],
    [OPEN],
    [OPEN, OPEN],
    [],
    [AclEntry(perms=31, scheme="auth", id="")],
    [AclEntry(perms=Permission.READ, scheme="world", id="anyone")],
    [AclEntry(perms=31, scheme="world", id="somebody")],
    [AclEntry(perms=31, scheme="digest", id="u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ=")],
    [AclEntry(perms=31, scheme="digest", id="nonsense")],
    [
        AclEntry(perms=31, scheme="ip", id="127.0.0.1"),
        AclEntry(perms=1, scheme="world", id="anyone"),
    ],
    [AclEntry(perms=31, scheme="ip", id="10.0.0.0/8")],
    [AclEntry(perms=31, scheme="nonsense", id="x")],
)
ANSWERS: dict[int, type] = {
    OpCode.CREATE: PathOnly,
    OpCode.CREATE_2: Create2Response,
    OpCode.CREATE_CONTAINER: Create2Response,
    OpCode.EXISTS: StatResponse,
    OpCode.GET_DATA: GetDataResponse,
    OpCode.SET_DATA: StatResponse,
    OpCode.GET_ACL: GetAclResponse,
    OpCode.SET_ACL: StatResponse,
    OpCode.GET_CHILDREN: GetChildrenResponse,
    OpCode.GET_CHILDREN_2: GetChildren2Response,
}


@contextmanager
def apache_or_skip(directory: Path | None = None) -> Iterator[ApacheZookeeper]:
    server = ApacheZookeeper(directory)
    server.start()
    with server:
        yield server


@pytest.fixture
def apache_of_its_own() -> Iterator[ApacheZookeeper]:
    with apache_or_skip() as server:
        yield server


class RequestGenerator:
    """Generates random requests."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def request(self) -> tuple[int, Message | bytes, int]:
        """Return a type, a body and the version of its encoding."""
        pick = self._random.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))[0]
        if pick == OpCode.MULTI:
            asked = [
                self._write(
                    self._random.choice(tuple(code for code in WRITES if code != OpCode.CREATE_TTL))
                )
                for _ in range(self._random.randint(0, 4))
            ]
            return pick, build_multi(asked), 0
        if pick in WRITES and pick != OpCode.CHECK:
            return *self._write(pick), 0
        return pick, *self._other(pick)

    def _write(self, op_code: int) -> tuple[OpCode, Message]:
        path, version = self._random.choice(PATHS), self._random.choice((-1, -1, -1, 0, 1, 2, -2))
        if op_code in (OpCode.CREATE, OpCode.CREATE_2, OpCode.CREATE_CONTAINER):
            mode = (
                CreateMode.CONTAINER
                if op_code == OpCode.CREATE_CONTAINER
                else self._random.choice((0, 0, 0, 1, 2, 3))
            )
            data = self._random.choice((b"", b"data", None))
            return OpCode(op_code), CreateRequest(path=path, data=data, acl=self._acl(), flags=mode)
        if op_code == OpCode.CREATE_TTL:
            return OpCode(op_code), CreateTtlRequest(
                path=path, data=b"", acl=[OPEN], flags=5, ttl=1000
            )
        if op_code == OpCode.SET_DATA:
            return OpCode(op_code), SetDataRequest(
                path=path, data=self._random.choice((b"", b"other", None)), version=version
            )
        return OpCode(op_code), VersionedPath(path=path, version=version)

    def _other(self, op_code: int) -> tuple[Message | bytes, int]:
        path = self._random.choice(PATHS)
        if op_code == OpCode.SET_ACL:
            return SetAclRequest(
                path=path, acl=self._acl(), version=self._random.choice((-1, -1, 0, 1))
            ), 0
        if op_code in (
            OpCode.GET_ACL,
            OpCode.SYNC,
            OpCode.GET_ALL_CHILDREN_NUMBER,
            OpCode.GET_EPHEMERALS,
        ):
            return PathOnly(path=path), 0
        if op_code == OpCode.ADD_WATCH:
            return AddWatchRequest(path=path, mode=self._random.choice((0, 1))), 0
        if op_code in (OpCode.CHECK_WATCHES, OpCode.REMOVE_WATCHES):
            return PathAndWatchKind(path=path, kind=self._random.choice((1, 2, 3))), 0
        if op_code == OpCode.WHO_AM_I:
            return b"", 0
        return WatchedPath(path=path, watch=self._random.random() < 0.4), 0

    def _acl(self) -> list[AclEntry]:
        return list(self._random.choice(ACLS))

    def client(self) -> int:
        """Return which of two clients sends the request."""
        return self._random.randint(0, 1)


IN_MULTI = tuple(code for code in WRITES if code != OpCode.CREATE_TTL)
WEIGHTS = {
    OpCode.CREATE: 20,
    OpCode.CREATE_2: 5,
    OpCode.CREATE_CONTAINER: 2,
    OpCode.CREATE_TTL: 1,
    OpCode.DELETE: 12,
    OpCode.SET_DATA: 10,
    OpCode.SET_ACL: 3,
    OpCode.GET_ACL: 3,
    OpCode.EXISTS: 10,
    OpCode.GET_DATA: 10,
    OpCode.GET_CHILDREN: 8,
    OpCode.GET_CHILDREN_2: 5,
    OpCode.MULTI: 12,
    OpCode.SYNC: 1,
    OpCode.ADD_WATCH: 2,
    OpCode.REMOVE_WATCHES: 2,
    OpCode.CHECK_WATCHES: 2,
    OpCode.WHO_AM_I: 1,
}


def shown(
    op_code: int, response: ZooKeeperResponse, sessions: dict[int, str]
) -> tuple[object, ...]:
    """Return a response without values that must differ: times and session ids."""
    cls = ANSWERS.get(op_code)
    body: object = response.body
    if response.header.error == 0 and cls is not None:
        message = response.read(cls)
        if hasattr(message, "stat"):
            message.stat.ctime = message.stat.mtime = 0
            message.stat.ephemeral_owner = sessions.get(
                message.stat.ephemeral_owner, message.stat.ephemeral_owner
            )
        if hasattr(message, "children"):
            message.children.sort()
        body = repr(message)
    elif op_code == OpCode.MULTI and response.header.error == 0:
        body = len(response.body), response.body[:8]
    return response.header.zxid, response.header.error, body, response.notified


@contextmanager
def two_clients(port: int) -> Iterator[tuple[list[ZooKeeperClient], dict[int, str]]]:
    with ZooKeeperClient(port) as first, ZooKeeperClient(port) as second:
        yield (
            [first, second],
            {first.connected.session_id: "first", second.connected.session_id: "second"},
        )
        for each in (first, second):
            each.ask(OpCode.CLOSE_SESSION)


def run(port: int, seed: int) -> list[tuple[object, ...]]:
    generator, answers = RequestGenerator(seed), []
    with two_clients(port) as (clients, sessions):
        clients[1].ask(OpCode.AUTH, AuthPacket(scheme="digest", auth=b"u:p"), xid=-4)
        for _ in range(REQUESTS):
            number = generator.client()
            op_code, body, version = generator.request()
            response = clients[number].ask(op_code, body, version=version)
            answers.append(
                (
                    OpCode(op_code).name,
                    str(body)[:200],
                    number,
                    *shown(op_code, response, sessions),
                    clients[1 - number].ping().notified,
                )
            )
    return answers


@pytest.mark.parametrize("seed", [1, 2, 6])
def test_thousands_of_zookeeper_requests_get_the_same_responses(
    apache_of_its_own: ApacheZookeeper, tmp_path: Path, seed: int
) -> None:
    theirs = run(apache_of_its_own.port, seed)
    with running_zookeeper(tmp_path) as ours:
        mine = run(ours.port, seed)
    for number, (their, my) in enumerate(zip(theirs, mine, strict=True)):
        assert my == their, f"request {number}, before it {theirs[max(0, number - 2) : number]}"
    assert len({answer[4] for answer in theirs}) > 7, "many error codes occurred"


def tree(port: int) -> dict[str, object]:
    """Return everything readable of all znodes, with sufficient permissions."""
    found: dict[str, object] = {}
    with ZooKeeperClient(port) as client:
        client.ask(OpCode.AUTH, AuthPacket(scheme="digest", auth=b"u:p"), xid=-4)
        waiting = ["/"]
        while waiting:
            path = waiting.pop()
            data, acl = (
                client.ask(OpCode.GET_DATA, WatchedPath(path=path)),
                client.ask(OpCode.GET_ACL, PathOnly(path=path)),
            )
            children = client.ask(OpCode.GET_CHILDREN, WatchedPath(path=path))
            found[path] = data.header.error, data.body, acl.body
            if children.header.error == 0:
                waiting += [
                    f"{path.rstrip('/')}/{name}"
                    for name in children.read(GetChildrenResponse).children
                ]
    return found


@pytest.mark.parametrize(
    "snapshots_every", [100_000, 500], ids=["from the log", "from a snapshot and the log"]
)
def test_apache_zookeeper_continues_from_data_that_ours_wrote(
    tmp_path: Path, snapshots_every: int
) -> None:
    with running_zookeeper(tmp_path, changes_between_snapshots=snapshots_every) as ours:
        with_sessions(ours.port)
        wanted = tree(ours.port)
    assert len(wanted) > 10
    with apache_or_skip(tmp_path / "data") as apache:
        assert tree(apache.port) == wanted


def test_our_zookeeper_continues_from_data_that_apache_zookeeper_wrote(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for _ in range(2):  # each start writes a snapshot
        with apache_or_skip(data) as apache:
            with_sessions(apache.port)
            wanted = tree(apache.port)
    with running_zookeeper(tmp_path) as ours:
        assert tree(ours.port) == wanted
        assert "Zxid: 0x" in word(ours.port, "srvr")


async def test_our_client_works_on_apache_zookeeper(
    apache_of_its_own: ApacheZookeeper, tmp_path: Path
) -> None:
    """The requests of brokers: ephemeral and sequential znodes, compare-and-set, multi, watches
    across a lost connection.
    """
    events: list[tuple[EventType, str]] = []
    states: list[SessionState] = []
    world = real_world(
        run="test",
        node="client",
        incarnation=1,
        data_dir=tmp_path / "data",
        events_dir=tmp_path / "events",
        seed=1,
        started_ns=0,
    )
    address = [("127.0.0.1", apache_of_its_own.port)]
    client = ZookeeperClient(
        world,
        address,
        on_event=lambda kind, path: events.append((kind, path)),
        on_state=states.append,
    )
    other = ZookeeperClient(world, address)
    client.start()
    other.start()
    assert await client.create("/brokers") == "/brokers"
    assert (
        await client.create("/brokers/id-", b"1", CreateMode.EPHEMERAL_SEQUENTIAL)
        == "/brokers/id-0000000000"
    )
    stat = await other.exists("/brokers/id-0000000000")
    assert stat is not None and stat.ephemeral_owner == client.session
    assert await client.children("/brokers", watch=True) == (
        ["id-0000000000"],
        (await other.exists("/brokers")),
    )
    await other.set("/brokers", b"x", 0)
    with pytest.raises(ZookeeperRefused, match="BAD_VERSION at /brokers"):
        await client.set("/brokers", b"y", 0)
    with pytest.raises(ZookeeperRefused, match="NO_NODE at /absent"):
        await client.multi(
            [
                (OpCode.CREATE, CreateRequest(path="/new", acl=[OPEN])),
                (OpCode.CHECK, VersionedPath(path="/absent")),
            ]
        )
    assert await client.exists("/new", watch=True) is None
    client.break_connection()
    await other.create("/new")
    await other.create("/brokers/another")
    async with asyncio.timeout(10):
        while len(events) < 2:
            await asyncio.sleep(0.05)
    assert sorted(events) == [
        (EventType.NODE_CREATED, "/new"),
        (EventType.NODE_CHILDREN_CHANGED, "/brokers"),
    ]
    await client.close()
    assert await other.exists("/brokers/id-0000000000") is None, (
        "closing a session deletes its ephemeral znodes"
    )
    await other.close()
    assert states == [
        SessionState.CONNECTED,
        SessionState.CONNECTING,
        SessionState.CONNECTED,
        SessionState.CLOSED,
    ]


def with_sessions(port: int) -> None:
    """Create a tree of all kinds of znodes, including ephemeral ones of a session that stays
    open.
    """
    generator = RequestGenerator(7)
    client = ZooKeeperClient(port, timeout_ms=40_000)
    client.ask(OpCode.AUTH, AuthPacket(scheme="digest", auth=b"u:p"), xid=-4)
    for _ in range(REQUESTS // 2):
        op_code, body, version = generator.request()
        client.ask(op_code, body, version=version)
