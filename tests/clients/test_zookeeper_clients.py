"""kazoo and aiozk, unmodified, on our ZooKeeper: recipes, transactions, watches, and a kill of the
server.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiozk
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    NoAuthError,
    NodeExistsError,
    NotEmptyError,
    RolledBackError,
)
from kazoo.protocol.states import KazooState
from kazoo.recipe.election import Election
from kazoo.security import make_digest_acl

from tests.node.zookeeper_server import RunningZookeeper, running_zookeeper

pytestmark = pytest.mark.interop

SECONDS = 20.0


@contextmanager
def kazoo(port: int, **options: object) -> Iterator[KazooClient]:
    client = KazooClient(hosts=f"127.0.0.1:{port}", **options)
    client.start(SECONDS)
    yield client
    client.stop()
    client.close()


def wait_for(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_kazoo_reads_writes_and_gets_the_expected_errors(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as zookeeper, kazoo(zookeeper.port) as client:
        client.ensure_path("/a/b/c")
        assert client.create("/a/n-", b"1", sequence=True, ephemeral=True) == "/a/n-0000000001"
        with pytest.raises(NodeExistsError):
            client.create("/a")
        with pytest.raises(NotEmptyError):
            client.delete("/a")
        with pytest.raises(BadVersionError):
            client.set("/a", b"", version=7)
        transaction = client.transaction()
        transaction.create("/t", b"x"), transaction.check("/a", 7), transaction.delete("/a/b")
        assert [type(result) for result in transaction.commit()][:2] == [
            RolledBackError,
            BadVersionError,
        ]
        assert client.exists("/t") is None
        client.delete("/a", recursive=True)
        client.add_auth("digest", "me:secret")
        client.create("/mine", acl=[make_digest_acl("me", "secret", all=True)])
        with kazoo(zookeeper.port) as other, pytest.raises(NoAuthError):
            other.get("/mine")


def test_kazoo_lock_election_and_watches_survive_a_kill(tmp_path: Path) -> None:
    zookeeper = RunningZookeeper(tmp_path)
    zookeeper.start()
    port = zookeeper.port
    with kazoo(port) as one, kazoo(port) as other:
        seen: list[bytes | None] = []
        states: list[KazooState] = []
        one.add_listener(states.append)
        one.create("/watched", b"0")
        one.DataWatch("/watched", lambda data, stat: seen.append(data))
        lock = one.Lock("/lock", "one")
        assert lock.acquire(timeout=SECONDS)
        leaders: list[str] = []
        waiting = threading.Thread(
            target=lambda: Election(other, "/election", "other").run(
                lambda: leaders.append("other")
            )
        )
        waiting.start()
        zookeeper.kill()
        wait_for(lambda: KazooState.SUSPENDED in states)
        zookeeper = RunningZookeeper(tmp_path, incarnation=2, port=port)
        zookeeper.start()
        wait_for(lambda: states and states[-1] == KazooState.CONNECTED)
        wait_for(lambda: other.connected)
        assert KazooState.LOST not in states, "the session outlived the server"
        other.retry(other.set, "/watched", b"1")
        wait_for(lambda: seen[-1:] == [b"1"])
        assert not other.Lock("/lock", "other").acquire(blocking=False)
        lock.release()
        assert other.Lock("/lock", "other").acquire(timeout=SECONDS)
        waiting.join(SECONDS)
        assert leaders == ["other"]
    zookeeper.stop()


async def test_aiozk_reads_writes_and_locks(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as zookeeper:
        client = aiozk.ZKClient(f"127.0.0.1:{zookeeper.port}")
        await client.start()
        await client.create("/a", "data")
        assert await client.get_data("/a") == b"data"
        assert sorted(await client.get_children("/")) == ["a", "zookeeper"]
        await client.set_data("/a", "other")
        assert await client.get_data("/a") == b"other"
        async with client.recipes.Lock("/lock"):
            assert await client.get_children("/lock")
        assert await client.get_children("/lock") == []
        await client.delete("/a")
        assert not await client.exists("/a")
        await client.close()
