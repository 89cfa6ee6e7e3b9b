"""kraftsim's ZooKeeper server over sockets: sessions, watches, kills, torn files, and invalid
requests.
"""

import time
from pathlib import Path

import pytest

from kraftsim.server.config_keys import ConfigError
from protocol.zookeeper.op_codes import CreateMode, OpCode, ZookeeperError
from protocol.zookeeper.znodes import (
    AclEntry,
    CreateRequest,
    GetDataResponse,
    PathOnly,
    SetDataRequest,
    SetWatches,
    VersionedPath,
    WatchedPath,
)
from tests.node.raw_zookeeper_client import ZooKeeperClient, ZooKeeperResponse, word
from tests.node.zookeeper_server import RunningZookeeper, running_zookeeper

OPEN = [AclEntry(perms=31, scheme="world", id="anyone")]
TICK_MS = 100
DELETED, CHANGED, CHILDREN = 2, 3, 4
CONNECTED = 3


def create(
    client: ZooKeeperClient, path: str, mode: CreateMode = CreateMode.PERSISTENT, data: bytes = b""
) -> ZooKeeperResponse:
    return client.ask(OpCode.CREATE, CreateRequest(path=path, data=data, acl=OPEN, flags=mode))


def exists(client: ZooKeeperClient, path: str) -> bool:
    return client.ask(OpCode.EXISTS, WatchedPath(path=path)).header.error == 0


def test_answered_requests_survive_a_kill_and_the_session_continues(tmp_path: Path) -> None:
    zookeeper = RunningZookeeper(tmp_path)
    zookeeper.start()
    with ZooKeeperClient(zookeeper.port) as client:
        assert create(client, "/kept", data=b"data").header.error == 0
        assert create(client, "/mine", CreateMode.EPHEMERAL).header.error == 0
        session, zxid = client.session, client.ping().header.zxid
        zookeeper.kill()
    with (
        running_zookeeper(tmp_path, incarnation=2) as again,
        ZooKeeperClient(again.port, had=session, last_zxid=zxid) as client,
    ):
        assert client.session == session
        assert (
            client.ask(OpCode.GET_DATA, WatchedPath(path="/kept")).read(GetDataResponse).data
            == b"data"
        )
        assert exists(client, "/mine")


@pytest.mark.parametrize(
    "torn",
    [b"", b"\0" * 100, b"\x00\x00\x00\x00\xff", b"\x00" * 11 + b"\x40" + b"x" * 20],
    ids=["whole", "zeros", "cut", "wrong"],
)
def test_log_torn_at_its_end_is_read_up_to_there(tmp_path: Path, torn: bytes) -> None:
    for number in range(3):
        zookeeper = RunningZookeeper(tmp_path, incarnation=1 + number)
        zookeeper.start()
        with ZooKeeperClient(zookeeper.port) as client:
            assert [exists(client, f"/{before}") for before in range(number)] == [True] * number
            create(client, f"/{number}")
        zookeeper.kill()
        newest = max(
            (tmp_path / "data" / "version-2").glob("log.*"),
            key=lambda file: int(file.suffix[1:], 16),
        )
        with newest.open("ab") as log:
            log.write(torn)


@pytest.mark.parametrize(
    "header, starts",
    [(b"", True), (b"ZK", True), (b"\0" * 4096, True), (b"ZKXX" + b"\0" * 96, False)],
)
def test_log_without_a_durable_header_is_empty(tmp_path: Path, header: bytes, starts: bool) -> None:
    """A power loss removes unflushed data: no client received a response for it.

    A wrong header is corruption.
    """
    zookeeper = RunningZookeeper(tmp_path)
    zookeeper.start()
    with ZooKeeperClient(zookeeper.port) as client:
        create(client, "/kept")
    zookeeper.kill()
    (
        tmp_path / "data" / "version-2" / f"log.{zookeeper.server.znode_state.last_zxid + 1:x}"
    ).write_bytes(header)
    again = RunningZookeeper(tmp_path, incarnation=2)
    if not starts:
        with pytest.raises(ConfigError, match="cannot be read"):
            again.start()
        again.kill()
        return
    again.start()
    with ZooKeeperClient(again.port) as client:
        assert exists(client, "/kept") and create(client, "/more").header.error == 0
    again.kill()
    with running_zookeeper(tmp_path, incarnation=3) as last, ZooKeeperClient(last.port) as client:
        assert exists(client, "/kept") and exists(client, "/more")


def test_snapshots_allow_older_logs_to_be_deleted(tmp_path: Path) -> None:
    with (
        running_zookeeper(tmp_path, changes_between_snapshots=50) as zookeeper,
        ZooKeeperClient(zookeeper.port) as client,
    ):
        for number in range(400):
            create(client, f"/{number}")
    files = sorted(
        file.name.partition(".")[0] for file in (tmp_path / "data" / "version-2").iterdir()
    )
    assert files.count("snapshot") == 3 and files.count("log") <= 4
    with (
        running_zookeeper(tmp_path, incarnation=2) as zookeeper,
        ZooKeeperClient(zookeeper.port) as client,
    ):
        assert all(exists(client, f"/{number}") for number in range(400))


def test_silent_session_expires_with_its_ephemeral_znodes(tmp_path: Path) -> None:
    with (
        running_zookeeper(tmp_path, tick_ms=TICK_MS) as zookeeper,
        ZooKeeperClient(zookeeper.port) as watcher,
    ):
        silent = ZooKeeperClient(zookeeper.port, timeout_ms=1)
        assert silent.connected.timeout_ms == 2 * TICK_MS, "two ticks is the least"
        create(silent, "/mine", CreateMode.EPHEMERAL)
        watcher.ask(OpCode.EXISTS, WatchedPath(path="/mine", watch=True))
        watcher.ask(OpCode.GET_CHILDREN, WatchedPath(path="/", watch=True))
        began = time.monotonic()
        notified = [watcher.notification(), watcher.notification()]
        assert (
            notified == [(DELETED, CONNECTED, "/mine"), (CHILDREN, CONNECTED, "/")]
            and time.monotonic() - began >= 0.5 * 2 * TICK_MS / 1000
        )
        with pytest.raises(ConnectionError):
            silent.next_frame()
        with ZooKeeperClient(zookeeper.port, had=silent.session) as late:
            assert (late.connected.session_id, late.connected.timeout_ms) == (0, 0)


def test_pinging_client_keeps_its_session(tmp_path: Path) -> None:
    with (
        running_zookeeper(tmp_path, tick_ms=TICK_MS) as zookeeper,
        ZooKeeperClient(zookeeper.port, timeout_ms=1) as client,
    ):
        create(client, "/mine", CreateMode.EPHEMERAL)
        for _ in range(10):
            time.sleep(TICK_MS / 1000)
            client.ping()
        assert exists(client, "/mine")


def test_wrong_password_does_not_resume_a_session(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as zookeeper, ZooKeeperClient(zookeeper.port) as client:
        session = client.session[0]
        with ZooKeeperClient(zookeeper.port, had=(session, b"0" * 16)) as thief:
            assert thief.connected.session_id == 0
        assert client.ping().header.error == 0


def test_session_resumed_elsewhere_closes_its_former_connection(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as zookeeper, ZooKeeperClient(zookeeper.port) as former:
        client = ZooKeeperClient(zookeeper.port, had=former.session)
        assert client.session == former.session
        with pytest.raises(ConnectionError):
            former.next_frame()


def test_client_with_a_later_zxid_is_rejected(tmp_path: Path) -> None:
    """It was connected to a server with later state; here it would go back in time."""
    with running_zookeeper(tmp_path) as zookeeper, pytest.raises(ConnectionError):
        ZooKeeperClient(zookeeper.port, last_zxid=1 << 40)


def test_reconnected_client_receives_missed_watch_events(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as zookeeper, ZooKeeperClient(zookeeper.port) as other:
        create(other, "/changed"), create(other, "/gone"), create(other, "/same")
        with ZooKeeperClient(zookeeper.port) as client:
            session, zxid = client.session, client.ping().header.zxid
        other.ask(OpCode.SET_DATA, SetDataRequest(path="/changed", data=b"x"))
        other.ask(OpCode.DELETE, VersionedPath(path="/gone"))
        create(other, "/came")
        with ZooKeeperClient(zookeeper.port, had=session, last_zxid=zxid) as client:
            wanted = SetWatches(
                relative_zxid=zxid,
                data_watches=["/changed", "/gone", "/same"],
                exist_watches=["/came"],
                child_watches=["/", "/same"],
            )
            notified = client.ask(OpCode.SET_WATCHES, wanted, xid=-8).notified
            assert notified == [
                (CHANGED, CONNECTED, "/changed"),
                (DELETED, CONNECTED, "/gone"),
                (1, CONNECTED, "/came"),
                (CHILDREN, CONNECTED, "/"),
            ]
            other.ask(OpCode.SET_DATA, SetDataRequest(path="/same", data=b"x"))
            assert client.notification() == (CHANGED, CONNECTED, "/same")


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff\xff\xff\xff",
        (1 << 24).to_bytes(4) + b"x",
        b"\x00\x00\x00\x02xx",
        b"\x00\x00\x00\x05abcde",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["negative size", "too large", "too short", "no header", "another protocol"],
)
def test_malformed_request_closes_only_its_connection(tmp_path: Path, sent: bytes) -> None:
    with running_zookeeper(tmp_path) as zookeeper, ZooKeeperClient(zookeeper.port) as other:
        with ZooKeeperClient(zookeeper.port) as client:
            client.send_raw(sent)
            with pytest.raises(ConnectionError):
                client.next_frame()
        assert other.ping().header.error == 0


def test_unreadable_body_is_a_marshalling_error(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as zookeeper, ZooKeeperClient(zookeeper.port) as client:
        assert (
            client.ask(OpCode.CREATE, b"\x00\x00\x00\x7f/a").header.error
            == ZookeeperError.MARSHALLING_ERROR
        )
        assert client.ask(99).header.error == ZookeeperError.UNIMPLEMENTED
        assert create(client, "/goes-on").header.error == 0


def test_four_letter_words_are_answered(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as zookeeper, ZooKeeperClient(zookeeper.port) as client:
        create(client, "/mine", CreateMode.EPHEMERAL)
        client.ask(OpCode.GET_DATA, WatchedPath(path="/mine", watch=True))
        assert word(zookeeper.port, "ruok") == "imok" and word(zookeeper.port, "isro") == "rw"
        assert "Mode: standalone\nNode count: 5\n" in word(zookeeper.port, "srvr")
        rows = dict(line.split("\t") for line in word(zookeeper.port, "mntr").splitlines())
        assert (
            rows["zk_znode_count"],
            rows["zk_ephemerals_count"],
            rows["zk_watch_count"],
            rows["zk_server_state"],
        ) == ("5", "1", "1", "standalone")
        assert "\t/mine\n" in word(zookeeper.port, "dump") and "Total watches:1" in word(
            zookeeper.port, "wchs"
        )
        assert f"clientPort={zookeeper.port}\n" in word(zookeeper.port, "conf")
        assert f"sid={client.session[0]:#x}" in word(zookeeper.port, "cons")


def test_too_many_connections_from_one_host_are_rejected(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path, connections_per_host_max=2) as zookeeper:
        let_in = [ZooKeeperClient(zookeeper.port) for _ in range(2)]
        with pytest.raises((ConnectionError, OSError)):
            ZooKeeperClient(zookeeper.port)
        assert [client.ping().header.error for client in let_in] == [0, 0]


def test_auth_scheme_acl_needs_an_authenticated_client(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as zookeeper, ZooKeeperClient(zookeeper.port) as client:
        notified = client.ask(
            OpCode.CREATE, CreateRequest(path="/a", acl=[AclEntry(perms=31, scheme="auth", id="")])
        )
        assert notified.header.error == ZookeeperError.INVALID_ACL, (
            "the client has not authenticated"
        )
        assert client.ask(OpCode.GET_ACL, PathOnly(path="/")).header.error == 0
