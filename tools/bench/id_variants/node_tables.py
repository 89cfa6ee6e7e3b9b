"""The tables about running nodes.

The waits of clients, the ids lost by crashes, lost responses and misbehaving callers, and the
sources of blocks in a mixed cluster.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

from tools.bench.id_variants.node_plot import picture
from tools.bench.id_variants.nodes import STALL_MS, RunCounts, RunParameters, Trouble, Way, simulate

ON_DEMAND: Final = {"kraftsim.producer.ids": "on-demand"}
EAGER: Final = {"kraftsim.producer.ids": "eager"}
SMALL: Final = {
    "kraftsim.producer.id.control": "resizable",
    "kraftsim.producer.id.block.size": "100",
}
LARGE: Final = {
    "kraftsim.producer.id.control": "resizable",
    "kraftsim.producer.id.block.size": "100000",
}
REPEATED: Final = {
    **SMALL,
    "kraftsim.producer.id.control": "repeating",
    "kraftsim.producer.id.blocks": "numbered",
}
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
MANY_IDS: Final = RunParameters(seconds=1.8, clients=24, think_ms=3.0)
DIRECT: Final = {"inter.broker.protocol.version": "2.8"}


def waiting(seed: int, plot: Path | None) -> None:
    """Print the waits of clients, with and without faults."""
    print(
        "\n| meanwhile | ids are come by | ids | answered 14 | the first one waited, ms | "
        f"waited longer than {STALL_MS:g} ms | median | 99 % | most |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    found: dict[str, dict[str, RunCounts]] = {}
    for trouble in Trouble:
        row: dict[str, RunCounts] = {}
        for way in WAYS:
            if way.zookeeper and trouble is not Trouble.NONE:
                continue  # there is no controller of KRaft to be away, and nothing is forwarded
            result = row[way.name] = simulate(
                way,
                MANY_IDS if trouble is Trouble.NONE else replace(MANY_IDS, trouble=trouble),
                seed,
            )
            waits = (
                f"{result.stalls:,} | {result.share_ms(50):.1f} | {result.share_ms(99):.1f} | "
                f"{max(result.waits_ms):,.0f}"
            )
            print(
                f"| {trouble.value} | {way.name} | {result.ids:,} | {result.refused:,} | "
                f"{result.first_ms:.0f} | {waits} |",
                flush=True,
            )
        found[trouble.value] = row
    if plot is not None:
        plot.write_text(
            picture(
                {
                    name: {way: 100 * each.stalls / len(each.waits_ms) for way, each in row.items()}
                    for name, row in found.items()
                }
            )
        )


def crash_loops(seed: int) -> None:
    """Print the ids lost by brokers that stop or crash repeatedly."""
    print(
        "\n| brokers end every | how | ends | blocks | ids used | ids burned | twice | years "
        "until 2^63 |\n|---|---|---|---|---|---|---|---|"
    )
    for crash_every_s, cleanly in (
        (0.0, True),
        (5.0, True),
        (1.0, True),
        (0.3, True),
        (0.3, False),
    ):
        what = RunParameters(
            seconds=20.0,
            clients=3,
            think_ms=30.0,
            crash_every_s=crash_every_s,
            crashes_cleanly=cleanly,
            asks_all=True,
        )
        result = simulate(Way(name="3.9"), what, seed)
        when, how = (
            (f"{crash_every_s:g} s", "stopped" if cleanly else "killed")
            if crash_every_s
            else ("never", "-")
        )
        counts = (
            f"{result.crashes} | {sum(result.blocks.values())} | {result.ids:,} | "
            f"{result.taken - result.ids:,} | {result.doubled}"
        )
        print(f"| {when} | {how} | {counts} | {result.years_left:,.0f} |", flush=True)


def lost_answers(seed: int) -> None:
    """Print the ids lost by lost responses, with and without request numbers."""
    print(
        "\n| answers lost | the controller | lost | blocks | ids used | ids burned | twice |\n"
        "|---|---|---|---|---|---|---|"
    )
    for lost in (0, 20, 50):
        for name, settings in (
            ("gives another block, as shipped", SMALL),
            ("repeats its answer", REPEATED),
        ):
            result = simulate(Way(name=name, settings=settings), RunParameters(lost=lost), seed)
            counts = (
                f"{result.lost} | {sum(result.blocks.values())} | {result.ids:,} | "
                f"{result.taken - result.ids:,} | {result.doubled}"
            )
            print(f"| {lost} % | {name} | {counts} |", flush=True)


def broken_callers(seed: int) -> None:
    """Print the effect of a caller that sends requests in a tight loop, with and without a rate
    limit.
    """
    print(
        "\n| a caller asks in a loop | limit, blocks a second and broker | records a second | "
        "clients of broker 1 answered 14 | waited at most, ms | years until 2^63 |\n"
        "|---|---|---|---|---|---|"
    )
    for looper, limit in (("", "0"), ("broker-3", "0"), ("broker-3", "10"), ("broker-1", "10")):
        way = Way(name="limited", settings={"kraftsim.producer.id.blocks.per.second": limit})
        result = simulate(way, RunParameters(looper=looper), seed)
        waits = f"{result.refused:,} | {max(result.waits_ms):.0f} | {result.years_left:,.0f}"
        caller, most = f"as {looper}" if looper else "no", limit if limit != "0" else "none"
        print(
            f"| {caller} | {most} | {result.records / result.seconds:,.0f} | {waits} |", flush=True
        )


def mixed_ways(seed: int) -> None:
    """Print the sources of blocks if some brokers update the znode themselves and others use
    AllocateProducerIds.
    """
    print(
        "\n| inter.broker.protocol.version 2.8 at | blocks taken directly | blocks given by the "
        "controller | ids | twice |\n|---|---|---|---|---|"
    )
    for direct in (
        (),
        ("broker-1",),
        ("broker-1", "broker-2"),
        ("broker-1", "broker-2", "broker-3"),
    ):
        way = Way(
            name="mixed",
            release="3.5",
            zookeeper=True,
            settings={"inter.broker.protocol.version": "3.0"},
            brokers=dict.fromkeys(direct, DIRECT),
        )
        result = simulate(way, RunParameters(asks_all=True), seed)
        counts = (
            f"{result.blocks.get('broker', 0)} | {result.blocks.get('controller', 0)} | "
            f"{result.ids:,} | {result.doubled}"
        )
        print(f"| {', '.join(direct) or 'none'} | {counts} |", flush=True)


def print_all(seed: int, plot: Path | None) -> None:
    """Print every table."""
    print(
        f"seed {seed}, 3 brokers and a controller in virtual time, 8 clients that ask broker 1 "
        "for about 1,000 ids a second, 4 s, else it is said"
    )
    print("first table: 24 clients, about 4,000 ids a second, 1.8 s")
    waiting(seed, plot)
    crash_loops(seed)
    lost_answers(seed)
    broken_callers(seed)
    mixed_ways(seed)
