"""The tables about running nodes.

What clients wait for, what crashes, lost answers and broken callers burn, and who gives blocks in a mixed cluster.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.id_variants.node_plot import picture
from bench.id_variants.nodes import STALL_MS, Play, Told, Trouble, Way, play

ON_DEMAND: Final = {"kraftsim.producer.ids": "on-demand"}
EAGER: Final = {"kraftsim.producer.ids": "eager"}
SMALL: Final = {"kraftsim.producer.id.control": "resizable", "kraftsim.producer.id.block.size": "100"}
LARGE: Final = {"kraftsim.producer.id.control": "resizable", "kraftsim.producer.id.block.size": "100000"}
REPEATED: Final = {**SMALL, "kraftsim.producer.id.control": "repeating", "kraftsim.producer.id.blocks": "numbered"}
BLOCKS: Final = "kraftsim.producer.id.blocks"
WAYS: Final = (
    Way(name="2.8: out of ZooKeeper", release="2.8", zookeeper=True),
    Way(name="3.5: waits for its block", release="3.5"),
    Way(name="3.9: at 90 %, and sends away", release="3.9"),
    Way(name="not ahead", settings=ON_DEMAND),
    Way(name="with the first id", settings=EAGER),
    Way(name="a channel of its own", settings={BLOCKS: "own-channel"}),
    Way(name="after replay", settings={BLOCKS: "after-replay"}),
    Way(name="off its own disk", settings={BLOCKS: "own-disk"}),
    Way(name="blocks of 100", settings=SMALL),
    Way(name="blocks of 100,000", settings=LARGE),
)
MANY_IDS: Final = Play(seconds=1.8, clients=24, think_ms=3.0)
DIRECT: Final = {"inter.broker.protocol.version": "2.8"}


def waiting(seed: int, plot: Path | None) -> None:
    """Print what clients wait for, in quiet times and otherwise."""
    print(
        "\n| meanwhile | ids are come by | ids | answered 14 | the first one waited, ms "
        f"| waited longer than {STALL_MS:g} ms | median | 99 % | most |\n|---|---|---|---|---|---|---|---|---|"
    )
    found: dict[str, dict[str, Told]] = {}
    for trouble in Trouble:
        row: dict[str, Told] = {}
        for way in WAYS:
            if way.zookeeper and trouble is not Trouble.NONE:
                continue  # there is no controller of KRaft to be away, and nothing is forwarded
            told = row[way.name] = play(way, MANY_IDS if trouble is Trouble.NONE else replace(MANY_IDS, trouble=trouble), seed)
            waits = f"{told.stalls:,} | {told.share_ms(50):.1f} | {told.share_ms(99):.1f} | {max(told.waits_ms):,.0f}"
            print(f"| {trouble.value} | {way.name} | {told.ids:,} | {told.refused:,} | {told.first_ms:.0f} | {waits} |", flush=True)
        found[trouble.value] = row
    if plot is not None:
        plot.write_text(picture({name: {way: 100 * each.stalls / len(each.waits_ms) for way, each in row.items()} for name, row in found.items()}))


def crash_loops(seed: int) -> None:
    """Print what brokers burn that end again and again."""
    print("\n| brokers end every | how | ends | blocks | ids used | ids burned | twice | years until 2^63 |\n|---|---|---|---|---|---|---|---|")
    for crash_every_s, cleanly in ((0.0, True), (5.0, True), (1.0, True), (0.3, True), (0.3, False)):
        what = Play(seconds=20.0, clients=3, think_ms=30.0, crash_every_s=crash_every_s, crashes_cleanly=cleanly, asks_all=True)
        told = play(Way(name="3.9"), what, seed)
        when, how = (f"{crash_every_s:g} s", "stopped" if cleanly else "killed") if crash_every_s else ("never", "-")
        counts = f"{told.crashes} | {sum(told.blocks.values())} | {told.ids:,} | {told.taken - told.ids:,} | {told.doubled}"
        print(f"| {when} | {how} | {counts} | {told.years_left:,.0f} |", flush=True)


def lost_answers(seed: int) -> None:
    """Print what answers burn that get lost, with and without numbers on requests."""
    print("\n| answers lost | the controller | lost | blocks | ids used | ids burned | twice |\n|---|---|---|---|---|---|---|")
    for lost in (0, 20, 50):
        for name, settings in (("gives another block, as shipped", SMALL), ("repeats its answer", REPEATED)):
            told = play(Way(name=name, settings=settings), Play(lost=lost), seed)
            counts = f"{told.lost} | {sum(told.blocks.values())} | {told.ids:,} | {told.taken - told.ids:,} | {told.doubled}"
            print(f"| {lost} % | {name} | {counts} |", flush=True)


def broken_callers(seed: int) -> None:
    """Print what a caller does that asks in a tight loop, with and without a limiter of its own."""
    print(
        "\n| a caller asks in a loop | limit, blocks a second and broker | records a second | clients of broker 1 answered 14 | waited at most, ms "
        "| years until 2^63 |\n|---|---|---|---|---|---|"
    )
    for looper, limit in (("", "0"), ("broker-3", "0"), ("broker-3", "10"), ("broker-1", "10")):
        way = Way(name="limited", settings={"kraftsim.producer.id.blocks.per.second": limit})
        told = play(way, Play(looper=looper), seed)
        waits = f"{told.refused:,} | {max(told.waits_ms):.0f} | {told.years_left:,.0f}"
        who, most = f"as {looper}" if looper else "no", limit if limit != "0" else "none"
        print(f"| {who} | {most} | {told.records / told.seconds:,.0f} | {waits} |", flush=True)


def mixed_ways(seed: int) -> None:
    """Print who gives blocks where some brokers set the znode themselves and others ask the controller."""
    print("\n| inter.broker.protocol.version 2.8 at | blocks taken directly | blocks given by the controller | ids | twice |\n|---|---|---|---|---|")
    for direct in ((), ("broker-1",), ("broker-1", "broker-2"), ("broker-1", "broker-2", "broker-3")):
        way = Way(
            name="mixed",
            release="3.5",
            zookeeper=True,
            settings={"inter.broker.protocol.version": "3.0"},
            brokers=dict.fromkeys(direct, DIRECT),
        )
        told = play(way, Play(asks_all=True), seed)
        counts = f"{told.blocks.get('broker', 0)} | {told.blocks.get('controller', 0)} | {told.ids:,} | {told.doubled}"
        print(f"| {', '.join(direct) or 'none'} | {counts} |", flush=True)


def print_all(seed: int, plot: Path | None) -> None:
    """Print every table."""
    print(f"seed {seed}, 3 brokers and a controller in virtual time, 8 clients that ask broker 1 for about 1,000 ids a second, 4 s, else it is said")
    print("first table: 24 clients, about 4,000 ids a second, 1.8 s")
    waiting(seed, plot)
    crash_loops(seed)
    lost_answers(seed)
    broken_callers(seed)
    mixed_ways(seed)
