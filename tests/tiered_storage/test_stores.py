"""One contract for every kind of store: a directory, a real S3 server, and the simulated one."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftsim.world.interface import ObjectStore
from kraftsim.world.real.objects import PieceReader, RealObjects, open_objects
from kraftsim.world.simulated import Simulation


async def promises(store: ObjectStore) -> None:
    """Complete objects are written and replaced, any range is read, and deleted objects are
    gone.
    """
    big = bytes(range(256)) * 4096 * 20
    pieces = [big[at : at + (8 << 20)] for at in range(0, len(big), 8 << 20)]
    await store.put("a/1.log", pieces)
    await store.put("a/2.log", [b"two", memoryview(b"-more")])
    await store.put("b/empty", [b""])
    assert await store.get("a/1.log") == big
    assert await store.get("a/1.log", 300, 4) == big[300:304]
    assert await store.get("a/1.log", len(big) - 2, 10) == big[-2:]
    assert await store.get("a/1.log", len(big) + 5, 10) == b""
    assert await store.get("a/2.log", 3) == b"-more" and await store.get("b/empty") == b""
    assert await store.list("a/") == ["a/1.log", "a/2.log"]
    await store.put("a/2.log", [b"another"])
    assert await store.get("a/2.log") == b"another"
    await store.delete("a/1.log")
    await store.delete("a/1.log")
    assert await store.list("") == ["a/2.log", "b/empty"]
    with pytest.raises(FileNotFoundError):
        await store.get("a/1.log")


@pytest.fixture
def directory_store(tmp_path: Path) -> Iterator[RealObjects]:
    """A store in a directory."""
    store = open_objects(f"file:{tmp_path / 'store'}", {})
    yield store
    store.close()


async def test_directory_store_keeps_the_contract(directory_store: RealObjects) -> None:
    """Files get their names when complete."""
    await promises(directory_store)


def test_simulated_store_keeps_the_contract() -> None:
    """In virtual time; another host reads what one host writes."""
    with Simulation(1) as simulation:
        for name in ("one", "other"):
            simulation.add_host(name)
        simulation.run_until(
            simulation.spawn("one", promises(simulation.world_of("one").objects("file:/s", {}))),
            limit_s=60,
        )
        other = simulation.world_of("other").objects("file:/s", {})
        assert simulation.run_until(simulation.spawn("other", other.list("a"))) == ["a/2.log"]


def test_chunks_are_read_as_one_file() -> None:
    """S3 clients seek back and read again when a request is retried."""
    reader = PieceReader([b"abc", memoryview(b"defg"), b""])
    assert reader.read() == b"abcdefg"
    assert reader.seek(-3, 2) == 4 and reader.read(2) == b"ef" and reader.tell() == 6


@pytest.mark.interop
def test_real_s3_server_keeps_the_contract() -> None:
    """S3Proxy, through boto3: one request for small objects, several parts for large ones."""
    pytest.importorskip("boto3")
    from tests.tiered_storage.s3_server import BUCKET, S3Server

    server = S3Server().__enter__()
    try:
        store = open_objects(f"s3:{BUCKET}", {**server.settings, "s3.prefix": "cluster-1/"})
        asyncio.run(promises(store))
        store.close()
        wrong = open_objects(f"s3:{BUCKET}", {**server.settings, "s3.secret.access.key": "wrong"})
        with pytest.raises(OSError):
            asyncio.run(wrong.list(""))
        wrong.close()
    finally:
        server.__exit__(None, None, None)
