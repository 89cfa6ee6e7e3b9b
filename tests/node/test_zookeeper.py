"""A ZooKeeper server of ours over sockets: sessions, watches, kills, torn files, and what no client should send."""

import time
from pathlib import Path

import pytest

from kraftsim.node.config_keys import ConfigError
from protocol.zookeeper.op_codes import CreateMode, OpCode, ZookeeperError
from protocol.zookeeper.watching import SetWatches
from protocol.zookeeper.znodes import AclEntry, CreateRequest, GetDataResponse, PathOnly, SetDataRequest, VersionedPath, WatchedPath
from tests.node.zookeeper_server import RunningZookeeper, running_zookeeper
from tests.node.zookeeper_talk import Told, ZookeeperTalk, word

OPEN = [AclEntry(perms=31, scheme="world", id="anyone")]
TICK_MS = 100
DELETED, CHANGED, CHILDREN = 2, 3, 4
CONNECTED = 3


def create(talk: ZookeeperTalk, path: str, mode: CreateMode = CreateMode.PERSISTENT, data: bytes = b"") -> Told:
    return talk.ask(OpCode.CREATE, CreateRequest(path=path, data=data, acl=OPEN, flags=mode))


def exists(talk: ZookeeperTalk, path: str) -> bool:
    return talk.ask(OpCode.EXISTS, WatchedPath(path=path)).header.error == 0


def test_what_was_answered_survives_a_kill_and_its_session_goes_on(tmp_path: Path) -> None:
    zookeeper = RunningZookeeper(tmp_path)
    zookeeper.start()
    with ZookeeperTalk(zookeeper.port) as talk:
        assert create(talk, "/kept", data=b"data").header.error == 0
        assert create(talk, "/mine", CreateMode.EPHEMERAL).header.error == 0
        session, zxid = talk.session, talk.ping().header.zxid
        zookeeper.kill()
    with running_zookeeper(tmp_path, incarnation=2) as again, ZookeeperTalk(again.port, had=session, last_zxid=zxid) as talk:
        assert talk.session == session
        assert talk.ask(OpCode.GET_DATA, WatchedPath(path="/kept")).read(GetDataResponse).data == b"data"
        assert exists(talk, "/mine")


@pytest.mark.parametrize(
    "torn", [b"", b"\0" * 100, b"\x00\x00\x00\x00\xff", b"\x00" * 11 + b"\x40" + b"x" * 20], ids=["whole", "zeros", "cut", "wrong"]
)
def test_a_log_that_is_torn_at_its_end_is_read_up_to_there(tmp_path: Path, torn: bytes) -> None:
    for number in range(3):
        zookeeper = RunningZookeeper(tmp_path, incarnation=1 + number)
        zookeeper.start()
        with ZookeeperTalk(zookeeper.port) as talk:
            assert [exists(talk, f"/{before}") for before in range(number)] == [True] * number
            create(talk, f"/{number}")
        zookeeper.kill()
        newest = max((tmp_path / "data" / "version-2").glob("log.*"), key=lambda file: int(file.suffix[1:], 16))
        with newest.open("ab") as log:
            log.write(torn)


@pytest.mark.parametrize("header, comes_up", [(b"", True), (b"ZK", True), (b"\0" * 4096, True), (b"ZKXX" + b"\0" * 96, False)])
def test_a_log_whose_header_never_reached_the_disk_is_none(tmp_path: Path, header: bytes, comes_up: bool) -> None:
    """A power loss takes what was not flushed: nobody heard of any change in it. A header that is wrong is damage."""
    zookeeper = RunningZookeeper(tmp_path)
    zookeeper.start()
    with ZookeeperTalk(zookeeper.port) as talk:
        create(talk, "/kept")
    zookeeper.kill()
    (tmp_path / "data" / "version-2" / f"log.{zookeeper.server.keeper.last_zxid + 1:x}").write_bytes(header)
    again = RunningZookeeper(tmp_path, incarnation=2)
    if not comes_up:
        with pytest.raises(ConfigError, match="cannot be read"):
            again.start()
        again.kill()
        return
    again.start()
    with ZookeeperTalk(again.port) as talk:
        assert exists(talk, "/kept") and create(talk, "/more").header.error == 0
    again.kill()
    with running_zookeeper(tmp_path, incarnation=3) as last, ZookeeperTalk(last.port) as talk:
        assert exists(talk, "/kept") and exists(talk, "/more")


def test_snapshots_let_older_logs_go(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path, changes_between_snapshots=50) as zookeeper, ZookeeperTalk(zookeeper.port) as talk:
        for number in range(400):
            create(talk, f"/{number}")
    files = sorted(file.name.partition(".")[0] for file in (tmp_path / "data" / "version-2").iterdir())
    assert files.count("snapshot") == 3 and files.count("log") <= 4
    with running_zookeeper(tmp_path, incarnation=2) as zookeeper, ZookeeperTalk(zookeeper.port) as talk:
        assert all(exists(talk, f"/{number}") for number in range(400))


def test_a_session_of_which_nothing_is_heard_ends_and_takes_its_znodes_along(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path, tick_ms=TICK_MS) as zookeeper, ZookeeperTalk(zookeeper.port) as watcher:
        silent = ZookeeperTalk(zookeeper.port, timeout_ms=1)
        assert silent.connected.timeout_ms == 2 * TICK_MS, "two ticks is the least"
        create(silent, "/mine", CreateMode.EPHEMERAL)
        watcher.ask(OpCode.EXISTS, WatchedPath(path="/mine", watch=True))
        watcher.ask(OpCode.GET_CHILDREN, WatchedPath(path="/", watch=True))
        began = time.monotonic()
        told = [watcher.notification(), watcher.notification()]
        assert told == [(DELETED, CONNECTED, "/mine"), (CHILDREN, CONNECTED, "/")] and time.monotonic() - began >= 0.5 * 2 * TICK_MS / 1000
        with pytest.raises(ConnectionError):
            silent.next_frame()
        with ZookeeperTalk(zookeeper.port, had=silent.session) as late:
            assert (late.connected.session_id, late.connected.timeout_ms) == (0, 0)


def test_a_client_that_pings_keeps_its_session(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path, tick_ms=TICK_MS) as zookeeper, ZookeeperTalk(zookeeper.port, timeout_ms=1) as talk:
        create(talk, "/mine", CreateMode.EPHEMERAL)
        for _ in range(10):
            time.sleep(TICK_MS / 1000)
            talk.ping()
        assert exists(talk, "/mine")


def test_a_wrong_password_does_not_give_a_session_back(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as zookeeper, ZookeeperTalk(zookeeper.port) as talk:
        session = talk.session[0]
        with ZookeeperTalk(zookeeper.port, had=(session, b"0" * 16)) as thief:
            assert thief.connected.session_id == 0
        assert talk.ping().header.error == 0


def test_a_session_that_is_taken_up_elsewhere_loses_its_former_connection(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as zookeeper, ZookeeperTalk(zookeeper.port) as former:
        talk = ZookeeperTalk(zookeeper.port, had=former.session)
        assert talk.session == former.session
        with pytest.raises(ConnectionError):
            former.next_frame()


def test_a_client_that_has_seen_more_is_sent_away(tmp_path: Path) -> None:
    """It was at a server that knew more; here it would go back in time."""
    with running_zookeeper(tmp_path) as zookeeper, pytest.raises(ConnectionError):
        ZookeeperTalk(zookeeper.port, last_zxid=1 << 40)


def test_a_client_that_comes_back_hears_what_it_missed(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as zookeeper, ZookeeperTalk(zookeeper.port) as other:
        create(other, "/changed"), create(other, "/gone"), create(other, "/same")
        with ZookeeperTalk(zookeeper.port) as talk:
            session, zxid = talk.session, talk.ping().header.zxid
        other.ask(OpCode.SET_DATA, SetDataRequest(path="/changed", data=b"x"))
        other.ask(OpCode.DELETE, VersionedPath(path="/gone"))
        create(other, "/came")
        with ZookeeperTalk(zookeeper.port, had=session, last_zxid=zxid) as talk:
            wanted = SetWatches(
                relative_zxid=zxid, data_watches=["/changed", "/gone", "/same"], exist_watches=["/came"], child_watches=["/", "/same"]
            )
            told = talk.ask(OpCode.SET_WATCHES, wanted, xid=-8).notified
            assert told == [(CHANGED, CONNECTED, "/changed"), (DELETED, CONNECTED, "/gone"), (1, CONNECTED, "/came"), (CHILDREN, CONNECTED, "/")]
            other.ask(OpCode.SET_DATA, SetDataRequest(path="/same", data=b"x"))
            assert talk.notification() == (CHANGED, CONNECTED, "/same")


@pytest.mark.parametrize(
    "sent",
    [b"\xff\xff\xff\xff", (1 << 24).to_bytes(4) + b"x", b"\x00\x00\x00\x02xx", b"\x00\x00\x00\x05abcde", b"GET / HTTP/1.1\r\n\r\n"],
    ids=["negative size", "too large", "too short", "no header", "another protocol"],
)
def test_bytes_that_are_no_request_end_their_connection_and_nothing_else(tmp_path: Path, sent: bytes) -> None:
    with running_zookeeper(tmp_path) as zookeeper, ZookeeperTalk(zookeeper.port) as other:
        with ZookeeperTalk(zookeeper.port) as talk:
            talk.send_raw(sent)
            with pytest.raises(ConnectionError):
                talk.next_frame()
        assert other.ping().header.error == 0


def test_a_body_that_cannot_be_read_is_a_marshalling_error(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as zookeeper, ZookeeperTalk(zookeeper.port) as talk:
        assert talk.ask(OpCode.CREATE, b"\x00\x00\x00\x7f/a").header.error == ZookeeperError.MARSHALLING_ERROR
        assert talk.ask(99).header.error == ZookeeperError.UNIMPLEMENTED
        assert create(talk, "/goes-on").header.error == 0


def test_four_letter_words_are_answered(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as zookeeper, ZookeeperTalk(zookeeper.port) as talk:
        create(talk, "/mine", CreateMode.EPHEMERAL)
        talk.ask(OpCode.GET_DATA, WatchedPath(path="/mine", watch=True))
        assert word(zookeeper.port, "ruok") == "imok" and word(zookeeper.port, "isro") == "rw"
        assert "Mode: standalone\nNode count: 5\n" in word(zookeeper.port, "srvr")
        rows = dict(line.split("\t") for line in word(zookeeper.port, "mntr").splitlines())
        assert (rows["zk_znode_count"], rows["zk_ephemerals_count"], rows["zk_watch_count"], rows["zk_server_state"]) == ("5", "1", "1", "standalone")
        assert "\t/mine\n" in word(zookeeper.port, "dump") and "Total watches:1" in word(zookeeper.port, "wchs")
        assert f"clientPort={zookeeper.port}\n" in word(zookeeper.port, "conf")
        assert f"sid={talk.session[0]:#x}" in word(zookeeper.port, "cons")


def test_too_many_connections_from_one_host_are_refused(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path, connections_per_host_max=2) as zookeeper:
        let_in = [ZookeeperTalk(zookeeper.port) for _ in range(2)]
        with pytest.raises((ConnectionError, OSError)):
            ZookeeperTalk(zookeeper.port)
        assert [talk.ping().header.error for talk in let_in] == [0, 0]


def test_acls_are_kept_by_name_and_not_by_who_asks(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as zookeeper, ZookeeperTalk(zookeeper.port) as talk:
        told = talk.ask(OpCode.CREATE, CreateRequest(path="/a", acl=[AclEntry(perms=31, scheme="auth", id="")]))
        assert told.header.error == ZookeeperError.INVALID_ACL, "nobody has said who it is"
        assert talk.ask(OpCode.GET_ACL, PathOnly(path="/")).header.error == 0
