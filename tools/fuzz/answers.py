"""Fuzzes running nodes over sockets: no node may crash, every response must be valid or its
connection closed, other clients must be served.

    python -m tools.fuzz.answers --frames 100000  a campaign against nodes, with a table at the end
    python -m tools.fuzz.answers --seconds 60     the same for a time: a target of `make fuzz`
    python -m tools.fuzz.answers --again HEX      one connection's input to each of the listeners

Five clusters are tested at once: KRaft without an authorizer and with one, ZooKeeper mode with one,
and two whose clients may legitimately end service (`tools.fuzz.obedient`). Clients are anonymous,
admin with all permissions, carol with some, bob with none. Exit code: 0 nothing broke, 1 something
did.
"""

import argparse
import asyncio
import json
import math
import sys
import tempfile
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psutil

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.readiness import ClusterFailed, NotReady
from kraftsim.conformance.batches import batch
from protocol.api_keys import ApiKey
from protocol.malformed import MalformedMessage
from protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.requests import UnsupportedApi, decode_response, request_chunks
from tools.fuzz.answer_frames import Asked, FrameMaker
from tools.fuzz.answer_targets import (
    ARE_OBEDIENT,
    HEALTHY_TOPIC,
    Listener,
    Prepared,
    clusters,
    give_rights,
    prepared,
)
from tools.fuzz.obedient import HANG_SECONDS, PAUSE_SECONDS, DisposableCluster, restarted

FRAMES_PER_CONNECTION = 24
ANSWER_SECONDS = 0.3
"""Some requests wait for others, and some get no response: then the connection is abandoned."""
HEALTHY_PAUSE_SECONDS = 0.02
GROWTH_BYTES_MAX = 20 << 20
RIGHTS_SECONDS = 1.0
RESTART_SECONDS = 30.0
TRACEBACK = "Traceback (most recent call last)"
KEPT_FRAMES = 100
LOST = Path(__file__).parents[2] / "build" / "fuzz" / "answers"
PRODUCE_VERSION = 9
WARM_UP_SECONDS = 30.0
"""A node keeps freed memory for the next request (`kraftsim.world.real.runner`), so its size
settles once it has seen requests of every size.
"""
AT_REST_SECONDS = 10.0
"""A node gives freed memory back when it comes to rest (`kraftsim.world.real.runner`), so its size
is read after a pause.
"""
USUAL_SECONDS = 60.0
NOT_ENCODED = "an answer cannot be encoded"
MEGABYTE = 1 << 20
REASON_CHARACTERS = 110
API_NAMES = {int(key): key.name for key in ApiKey}


@dataclass(slots=True)
class Outcome:
    """The responses to hostile clients, and the failures."""

    frames: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    last: dict[str, deque[Asked]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=KEPT_FRAMES))
    )
    """By listener: one that hangs gets no more frames, while the others get thousands."""
    healthy_seconds: list[float] = field(default_factory=list)

    @property
    def p99_ms(self) -> float:
        """The 99th percentile of the latency of the healthy clients' records."""
        ordered = sorted(self.healthy_seconds)
        return (
            1000 * ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
            if ordered
            else float("nan")
        )


async def attack(
    listener: Listener, maker: FrameMaker, outcome: Outcome, has_more: Callable[[], bool]
) -> None:
    """Run one hostile client after another until there are enough frames."""
    refused = 0
    while has_more() and not outcome.broken:
        try:
            reader, writer = await asyncio.open_connection(listener.host, listener.port)
        except OSError as error:
            refused += 1
            if refused > 20 and not listener.is_obedient:
                outcome.broken.append(f"{listener.name} accepts no connection: {error}")
            await asyncio.sleep(0.1)
            continue
        refused = 0
        try:
            await listener.log_in(reader, writer)
            for _ in range(FRAMES_PER_CONNECTION):
                if not has_more() or not await ask(reader, writer, maker.next(), listener, outcome):
                    break
        except (OSError, asyncio.IncompleteReadError):
            outcome.verdicts["closed"] += 1
        finally:
            writer.transport.abort()


async def ask(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    asked: Asked,
    listener: Listener,
    outcome: Outcome,
) -> bool:
    """Send one request and check its response; return whether the connection is still usable."""
    outcome.frames += 1
    outcome.last[listener.name].append(asked)
    writer.write(asked.frame)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            answer = await reader.readexactly(
                int.from_bytes(await reader.readexactly(4), signed=True)
            )
    except TimeoutError:
        outcome.verdicts["no answer yet"] += 1
        return False
    except (asyncio.IncompleteReadError, OSError):
        outcome.verdicts["closed"] += 1
        return False
    wrong = why_wrong(asked, answer)
    if wrong is not None:
        outcome.broken.append(f"{listener.name}: {wrong}\n{again(asked)}")
    outcome.verdicts["answered"] += 1
    return wrong is None


def why_wrong(asked: Asked, answer: bytes) -> str | None:
    """Return why a client cannot parse the response to this request, or None."""
    try:
        correlation_id, _ = decode_response(asked.api_key, asked.version, answer)
    except (MalformedMessage, UnsupportedApi) as error:
        return (
            f"the answer to {ApiKey(asked.api_key).name} v{asked.version} cannot be read: {error}"
        )
    return (
        None
        if correlation_id == asked.correlation_id
        else f"request {asked.correlation_id} is answered as {correlation_id}"
    )


def again(asked: Asked) -> str:
    """Return the command that sends a request again."""
    return f"again: .venv/bin/python -m tools.fuzz.answers --again {asked.frame.hex()}"


async def produce_healthily(
    target: Prepared, outcome: Outcome, has_more: Callable[[], bool]
) -> None:
    """Produce one record after another as a healthy client, and measure the latency."""
    name = target.listeners[0].name.split(" broker")[0]
    rows = [
        TopicProduceData(
            name=HEALTHY_TOPIC, partition_data=[PartitionProduceData(index=0, records=batch())]
        )
    ]
    frame = b"".join(
        request_chunks(
            int(ApiKey.PRODUCE),
            PRODUCE_VERSION,
            1,
            "healthy",
            ProduceRequest(acks=-1, timeout_ms=5000, topic_data=rows),
        )
    )
    try:
        reader, writer = await asyncio.open_connection(*target.healthy)
        while has_more() and not outcome.broken:
            started = time.perf_counter()
            writer.write(frame)
            async with asyncio.timeout(HANG_SECONDS):
                answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
            outcome.healthy_seconds.append(time.perf_counter() - started)
            error = (
                decode_response(int(ApiKey.PRODUCE), PRODUCE_VERSION, answer)[1]
                .responses[0]
                .partition_responses[0]
                .error_code
            )
            if error:
                outcome.broken.append(f"{name}: a healthy producer gets error {error}")
            await asyncio.sleep(HEALTHY_PAUSE_SECONDS)
        writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        outcome.broken.append(f"{name}: a healthy producer gets no answer: {error!r}")


async def keep_rights(target: Prepared, outcome: Outcome, has_more: Callable[[], bool]) -> None:
    """Create carol's ACLs again and again."""
    while has_more() and not outcome.broken:
        await asyncio.sleep(RIGHTS_SECONDS)
        try:
            await give_rights(target)
        except (OSError, asyncio.IncompleteReadError) as error:
            outcome.broken.append(f"CreateAcls is not answered: {error!r}")


async def watch(
    disposable: DisposableCluster, outcome: Outcome, has_more: Callable[[], bool]
) -> None:
    """Check a cluster that may legitimately end its service."""
    while has_more() and not outcome.broken:
        await asyncio.sleep(PAUSE_SECONDS)
        broken = await disposable.look()
        if broken is not None:
            outcome.broken.append(broken)


async def campaign(
    targets: list[Prepared],
    outcome: Outcome,
    rng: Random,
    has_more: Callable[[], bool],
    disposable: Sequence[DisposableCluster] = (),
) -> None:
    """Run hostile clients on every listener of every cluster, with healthy producers in
    parallel.
    """
    async with asyncio.TaskGroup() as group:
        for each in disposable:
            group.create_task(watch(each, outcome, has_more))
        for target in targets:
            group.create_task(produce_healthily(target, outcome, has_more))
            if target.has_rules:
                group.create_task(keep_rights(target, outcome, has_more))
        for target in (*targets, *(each.target for each in disposable)):
            for listener in target.listeners:
                maker = _maker(target, listener, rng)
                for _ in range(listener.connections):
                    group.create_task(attack(listener, maker, outcome, has_more))


async def ask_each_once(
    target: Prepared, rng: Random, outcome: Outcome, *, newest_only: bool = False
) -> None:
    """Send each listener one request of every API and version, or of the newest versions, with
    maximal texts.
    """
    for listener in target.listeners:
        maker = _maker(target, listener, rng)
        todo = maker.each_once(newest_only=newest_only)
        await asyncio.gather(
            *(_ask_all(listener, todo, outcome) for _ in range(listener.connections))
        )


async def refuse_each_once(target: Prepared, rng: Random, outcome: Outcome) -> None:
    """Send each listener one malformed request of every API and version."""
    for listener in target.listeners:
        todo = _maker(target, listener, rng).each_truncated()
        await asyncio.gather(
            *(_ask_all(listener, todo, outcome) for _ in range(listener.connections))
        )


async def _ask_all(listener: Listener, todo: Iterator[Asked], outcome: Outcome) -> None:
    for asked in todo:
        reader, writer = await asyncio.open_connection(listener.host, listener.port)
        try:
            await listener.log_in(reader, writer)
            await ask(reader, writer, asked, listener, outcome)
        finally:
            writer.transport.abort()


def _maker(target: Prepared, listener: Listener, rng: Random) -> FrameMaker:
    return FrameMaker(
        Random(rng.random()), listener.offered, target.names, target.ids, listener.left_out
    )


def main() -> int:
    """Run a campaign, or one frame."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz.answers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--frames", type=int, default=0, help="number of frames")
    parser.add_argument(
        "--seconds", type=float, help="end after this time (default: 60, or never with --frames)"
    )
    parser.add_argument("--seed", default="answers", help="random seed")
    parser.add_argument("--again", metavar="HEX", help="send one frame to every listener")
    parser.add_argument("--out", type=Path, help="keep logs, events and data of all nodes here")
    chosen = parser.parse_args()
    outcome = Outcome()
    if chosen.out is not None:
        return asyncio.run(_run(chosen, outcome, chosen.out))
    with tempfile.TemporaryDirectory(prefix="kraftsim-fuzz-") as directory:
        return asyncio.run(_run(chosen, outcome, Path(directory)))


async def _run(chosen: argparse.Namespace, outcome: Outcome, directory: Path) -> int:
    running: list[ProcessCluster] = []
    disposable: list[DisposableCluster] = []
    try:
        specs = clusters()
        steady = {name: spec for name, spec in specs.items() if name not in ARE_OBEDIENT}
        for name, spec in steady.items():
            cluster = ProcessCluster(spec, RunDirectory(directory / name))
            running.append(cluster)
            await cluster.start()
        targets = [await prepared(name, spec) for name, spec in steady.items()]
        for name in sorted(ARE_OBEDIENT):
            disposable.append(DisposableCluster(name, specs[name], directory))
            await disposable[-1].start()
        if chosen.again:
            targets += [each.target for each in disposable]
            return await _again(bytes.fromhex(chosen.again), targets, running, disposable)
        return await _measured(chosen, outcome, targets, running, disposable)
    finally:
        for cluster in (*running, *(each.cluster for each in disposable)):
            await cluster.stop()


async def _measured(
    chosen: argparse.Namespace,
    outcome: Outcome,
    targets: list[Prepared],
    running: list[ProcessCluster],
    disposable: list[DisposableCluster],
) -> int:
    rng = Random(chosen.seed)
    warm_up = Outcome()
    for target in targets:
        # A node compiles a codec at its first use, and the variant that reports the malformed field
        # at its first error.
        await ask_each_once(target, rng, warm_up)
        await refuse_each_once(target, rng, warm_up)
    fresh = await _resident_bytes_at_rest(running)
    warm_up_end = time.monotonic() + WARM_UP_SECONDS
    await campaign(targets, warm_up, rng, lambda: time.monotonic() < warm_up_end, disposable)
    outcome.broken += warm_up.broken
    outcome.last |= warm_up.last
    before = await _resident_bytes_at_rest(running)
    started = time.monotonic()
    line = asyncio.ensure_future(_progress(outcome, started, running))
    frames = chosen.frames or sys.maxsize
    seconds_max = chosen.seconds or (math.inf if chosen.frames else USUAL_SECONDS)

    def has_more() -> bool:
        return bool(outcome.frames < frames and time.monotonic() - started < seconds_max)

    await campaign(targets, outcome, rng, has_more, disposable)
    line.cancel()
    seconds = time.monotonic() - started
    after = await _resident_bytes_at_rest(running)
    dead = _dead([*running, *(each.cluster for each in disposable)])
    if not dead:
        outcome.broken += await _why_not_restarted(running)
    directories = [
        *(each.directory for each in running),
        *(one for each in disposable for one in each.directories),
    ]
    failures = _failures(directories)
    outcome.broken += [
        f"{count} x {failure}"
        for failure, count in failures.items()
        if not failure.startswith(NOT_ENCODED)
    ]
    outcome.broken += [
        f"{name} grew by {(after[name] - before[name]) / MEGABYTE:.1f} MB"
        for name in before
        if name in after and after[name] - before[name] > GROWTH_BYTES_MAX
    ]
    if dead or outcome.broken:
        LOST.mkdir(parents=True, exist_ok=True)
        lines = [
            f"{listener} {again(asked)}\n"
            for listener, frames in outcome.last.items()
            for asked in frames
        ]
        (LOST / "last-frames").write_text("".join(lines))
        print(
            *outcome.broken,
            f"the last frames of each listener, {len(lines)} in all, are in {LOST / 'last-frames'}",
            sep="\n",
        )
    print(f"\n| {'measure':34} | value |\n|{'-' * 36}|---|")
    for what, value in _rows(outcome, seconds, dead, (fresh, before, after), failures):
        print(f"| {what:34} | {value} |")
    for each in disposable:
        for why, count in each.renewals.most_common():
            print(f"| {f'{each.name}, started again':34} | {count} x {why} |")
        peaks = ", ".join(f"{name} {peak / MEGABYTE:.0f} MB" for name, peak in each.peaks.items())
        print(f"| {f'{each.name}, memory at most':34} | {peaks} |")
        print(
            f"| {f'{each.name}, longest':34} | {1000 * each.longest_seconds:.0f} ms for "
            "ApiVersions |"
        )
    return 1 if dead or outcome.broken else 0


async def _why_not_restarted(running: list[ProcessCluster]) -> list[str]:
    """Kill all nodes, restart them on their data, and return the failures."""
    ends = await asyncio.gather(
        *(restarted(cluster, RESTART_SECONDS) for cluster in running),
        return_exceptions=True,
    )
    trouble = []
    for end in ends:
        if isinstance(end, ClusterFailed | NotReady):
            trouble.append(f"nodes do not restart: {end}")
        elif end is not None:
            raise end
    return trouble


def _rows(
    outcome: Outcome,
    seconds: float,
    dead: list[str],
    resident_bytes: Sequence[dict[str, int]],
    failures: Counter[str],
) -> Iterator[tuple[str, str]]:
    fresh, before, after = resident_bytes
    yield (
        "frames",
        (
            f"{outcome.frames} in {seconds:.0f} s ({outcome.frames / max(seconds, 0.001):.0f} a "
            "second)"
        ),
    )
    for verdict, count in sorted(outcome.verdicts.items()):
        yield verdict, str(count)
    yield "crashed nodes", ", ".join(dead) or "0"
    for name in before:
        grown = f"{(after[name] - before[name]) / MEGABYTE:+.1f} MB" if name in after else "ended"
        yield (
            f"memory of {name}",
            (
                f"{fresh[name] / MEGABYTE:.0f} MB fresh, {before[name] / MEGABYTE:.0f} MB warm, "
                f"{grown} since"
            ),
        )
    for failure, count in failures.most_common():
        yield "failures within a node", f"{count} x {failure}"
    yield (
        "healthy producers, p99",
        f"{outcome.p99_ms:.1f} ms of {len(outcome.healthy_seconds)} records",
    )
    yield "healthy producers, longest", f"{1000 * max(outcome.healthy_seconds, default=0):.0f} ms"


async def _progress(outcome: Outcome, started: float, running: list[ProcessCluster]) -> None:
    while True:
        await asyncio.sleep(5)
        print(
            f"answers: {time.monotonic() - started:.0f} s, {outcome.frames} frames, "
            f"{dict(outcome.verdicts)}, p99 {outcome.p99_ms:.0f} ms",
            flush=True,
        )
        dead = _dead(running)
        if dead:
            outcome.broken.append(f"ended: {', '.join(dead)}")


async def _again(
    frame: bytes,
    targets: list[Prepared],
    running: list[ProcessCluster],
    disposable: list[DisposableCluster],
) -> int:
    for target in targets:
        for listener in target.listeners:
            reader, writer = await asyncio.open_connection(listener.host, listener.port)
            await listener.log_in(reader, writer)
            writer.write(frame)
            try:
                async with asyncio.timeout(5):
                    answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
                print(
                    f"{listener.name}: answered with {len(answer)} bytes, {answer[:80].hex(' ')} "
                    "..."
                )
            except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
                print(f"{listener.name}: {error!r}")
            writer.transport.abort()
    everything = [*running, *(each.cluster for each in disposable)]
    dead = _dead(everything)
    failures = _failures([each.directory for each in everything])
    print(*failures, f"ended: {', '.join(dead)}" if dead else "all nodes are running", sep="\n")
    return 1 if dead or failures else 0


def _dead(running: list[ProcessCluster]) -> list[str]:
    return [
        f"{name} {cluster.directory.human_log(name)}"
        for cluster in running
        for name in cluster.spec.node_names
        if cluster.has_ended(name)
    ]


def _failures(directories: Sequence[RunDirectory]) -> Counter[str]:
    """Count the failures within nodes: responses that could not be encoded, as one; all others by
    API and reason; and tracebacks.
    """
    found: Counter[str] = Counter()
    for directory in directories:
        for file in directory.events.glob("*.jsonl"):
            with file.open("rb") as lines:
                for line in lines:
                    if b'"kind":"MessageFailed"' in line or b"the handler failed" in line:
                        event = json.loads(line)
                        is_encoding = "cannot be encoded" in event["reason"]
                        name = API_NAMES.get(event.get("api_key"), event["kind"])
                        reason = (
                            NOT_ENCODED
                            if is_encoding
                            else f"{name}: {event['reason'][:REASON_CHARACTERS]}"
                        )
                        found[f"{reason} ({event.get('action', 'closed')})"] += 1
        for log in (directory.root / "logs").glob("*.log"):
            found += _tracebacks(log)
    return found


def _tracebacks(log: Path) -> Counter[str]:
    """Return the last line of each traceback in a node's log."""
    found: Counter[str] = Counter()
    is_inside = False
    with log.open(errors="replace") as lines:
        for line in lines:
            if line.startswith(TRACEBACK):
                is_inside = True
            elif is_inside and not line.startswith(" "):
                found[f"traceback: {line.strip()[:REASON_CHARACTERS]}"] += 1
                is_inside = False
    return found


async def _resident_bytes_at_rest(running: list[ProcessCluster]) -> dict[str, int]:
    await asyncio.sleep(AT_REST_SECONDS)
    return {
        f"{name} at {cluster.spec.port}": psutil.Process(cluster.pid(name)).memory_info().rss
        for cluster in running
        for name in cluster.spec.node_names
        if not cluster.has_ended(name)
    }


if __name__ == "__main__":
    sys.exit(main())
