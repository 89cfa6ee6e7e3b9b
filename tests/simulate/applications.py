"""Applications and simulation tests that tests run in virtual time; they use asyncio alone."""

import asyncio
import ctypes
import os
import random
import time
import uuid

import pytest

import kraftsim
from kraftsim.lab.application.run import ApplicationRun

REQUEST = bytes.fromhex("0000000e001200000000000100046d696e65")
"""ApiVersions v0 with correlation id 1, of the client `mine`: a frame of 18 bytes."""


async def api_versions(host: kraftsim.AppHost) -> bytes:
    """Return the response of the first broker."""
    name, _, port = host.bootstrap.partition(",")[0].partition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    writer.write(REQUEST)
    size = int.from_bytes(await reader.readexactly(4), "big")
    answer = await reader.readexactly(size)
    writer.close()
    return answer


@kraftsim.application(brokers=1, faults=False, fault_seconds=1.0)
async def asks(host: kraftsim.AppHost) -> None:
    """Ask a broker once, and state what third-party code would depend on."""
    host.fact("answered", value=len(await api_versions(host)))
    host.fact("ambient", value=f"{time.time()} {random.random()} {uuid.uuid4()} {hash('a')}")
    host.fact("set", value=",".join({f"member-{number}" for number in range(8)}))
    print("printed by", host.name)


@kraftsim.application(brokers=1, faults=False, fault_seconds=1.0, restart_seconds=0.5)
async def crashes_twice(host: kraftsim.AppHost) -> None:
    """Count its starts on disk; crash twice."""
    count = int(host.disk.read("count") if host.disk.exists("count") else b"0") + 1
    await host.disk.replace("count", str(count).encode())
    host.fact("started", key=host.incarnation, value=count)
    if count < 3:
        raise RuntimeError(f"start {count}")


@kraftsim.application(brokers=1, faults=False, fault_seconds=1.0)
async def always_crashes(host: kraftsim.AppHost) -> None:
    """Crash at every start."""
    raise LookupError("no such setting")


@kraftsim.application(brokers=1, faults=False, fault_seconds=1.0)
async def asserts(host: kraftsim.AppHost) -> None:
    """Fail an assertion."""
    await asyncio.sleep(0.5)
    assert host.number == 2, "it is the first one"


@kraftsim.application(brokers=1, faults=False, fault_seconds=1.0)
async def exits(host: kraftsim.AppHost) -> None:
    """End the whole process, as Python does not allow in a simulation."""
    os._exit(7)


@kraftsim.application(brokers=1, faults=False, fault_seconds=1.0)
async def dies(host: kraftsim.AppHost) -> None:
    """End the whole process as a broken C extension does."""
    print("last words", flush=True)
    ctypes.string_at(0)


@kraftsim.application(brokers=1, faults=False, fault_seconds=1.0, settle_seconds=2.0)
async def runs_on(host: kraftsim.AppHost) -> None:
    """Run until it is cancelled."""
    try:
        await asyncio.Event().wait()
    finally:
        host.fact("ended")


async def check_topic(simulation: ApplicationRun) -> None:
    """Check what the application did."""
    assert simulation.topics == {"orders": 3}
    simulation.fact("checked", value=len(simulation.instances))


@kraftsim.application(
    brokers=1, faults=False, fault_seconds=1.0, topics={"orders": 2}, check=check_topic
)
async def has_a_check(host: kraftsim.AppHost) -> None:
    """Return at once."""


@pytest.mark.kraftsim_simulation(brokers=1, faults=False)
async def faults_by_hand(simulation: ApplicationRun) -> None:
    """Kill, restart, pause and cut; read and write records."""
    await simulation.create_topic("orders", partitions=2)
    simulation.expect_copy("orders", "orders")
    keys = await simulation.produce("orders", 5)
    (name,) = simulation.start(runs_on)
    simulation.kill(name)
    await simulation.restart(name)
    assert simulation.instances[name].is_wanted
    simulation.pause("broker-1", seconds=2)
    began = simulation.now
    simulation.cut(f"{name}<>broker-1", seconds=1)
    keys += await simulation.produce("orders", [("more", b"value")])
    assert simulation.now - began > 1.5, "the broker was paused"
    simulation.kill("broker-1")
    await simulation.heal()
    await simulation.until(lambda: simulation.now > began + 5, what="a while")
    records = await simulation.read("orders")
    assert sorted(record.key for record in records) == sorted(keys)
    assert await simulation.committed("no-group", "orders") == {0: -1, 1: -1}
    await simulation.stop()


@pytest.mark.kraftsim_simulation(brokers=3, fault_seconds=4, instances=2)
async def under_drawn_faults(simulation: ApplicationRun) -> None:
    """Run an application under the faults of the seed."""
    await simulation.create_topic("orders", partitions=2)
    simulation.start(runs_on, instances=2)
    await simulation.faults()
    await simulation.produce("orders", 3)
    await simulation.stop()


@pytest.mark.kraftsim_simulation(brokers=3, fault_seconds=4)
async def loses_to_a_pause(simulation: ApplicationRun) -> None:
    """Fail when a broker was paused: an assertion that faults break."""
    await simulation.create_topic("orders", partitions=1)
    simulation.fault("pause", "broker-*", duration_ms=3000)
    began = simulation.now
    await simulation.produce("orders", 1)
    assert simulation.now - began < 1, "too slow"


def no_coroutine(host: kraftsim.AppHost) -> None:
    """Be no coroutine function."""


async def two_parameters(simulation: ApplicationRun, tmp_path: str) -> None:
    """Ask for a fixture."""


@pytest.mark.kraftsim_simulation(broker=3)
async def unknown_option(simulation: ApplicationRun) -> None:
    """Misspell an option."""
