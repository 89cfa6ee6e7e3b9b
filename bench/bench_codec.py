"""How fast the codec is, against the two other Python codecs of Kafka's protocol, in one process and in turns.

    python bench/bench_codec.py [--rounds 7] [--only Produce,InitProducerId]

Each declared request and response is measured at its newest version that kio knows, and at its newest one without tagged
fields. All codecs get the same bytes: typical values, three elements per list. Before anything is timed, what the others
build must equal what we build. Figures are the best of the rounds; ratios are geometric means: they are to be trusted,
microseconds drift with the machine.
"""

import argparse
import gc
import importlib
import io
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp, log
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from protocol.declaration import Primitive, snake_case
from protocol.message_codec import compiled
from protocol.messages import registry
from protocol.resolve import ArrayLayout, PresentField, StructureLayout, default_of
from protocol.schema import declaration_of

Job = Callable[[], object]
SECONDS_PER_BATCH = 0.004
LIST_SIZE = 3
RECORDS_SIZE = 1024
TIMESTAMP_MS = 1_700_000_000_000
UNLIKE = "builds other bytes"


@dataclass(slots=True)
class Row:
    """One message at one version; `best` holds seconds per (codec, job)."""

    name: str
    version: int
    size_bytes: int
    jobs: dict[tuple[str, str], Job]
    best: dict[tuple[str, str], float] = field(default_factory=dict)

    def seconds(self, codec: str) -> float | None:
        """Return parse plus build, or None if the codec does not know the message."""
        if (codec, "parse") not in self.best:
            return None
        return self.best[codec, "parse"] + self.best[codec, "build"]


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="comma-separated beginnings of message names")
    options = parser.parse_args(arguments)
    wanted = tuple(options.only.split(","))
    rows = [row for row in all_rows() if row.name.startswith(wanted)]
    measure(rows, options.rounds)
    for line in table(rows):
        print(line)
    return 0


def all_rows() -> list[Row]:
    """Prepare every declared message."""
    rows = []
    for api_key in registry.declared_api_keys():
        for cls in (registry.request_class(api_key), registry.response_class(api_key)):
            rows += [_row(cls, version) for version in _versions(cls)]
    return rows


def measure(rows: list[Row], rounds: int) -> None:
    """Time all jobs of all rows in turns, `rounds` times, and keep the best of each: what disturbs the machine for a moment spoils one round."""
    counts = [{key: _batch_size(job) for key, job in row.jobs.items()} for row in rows]
    for _ in range(rounds):
        for row, count_of in zip(rows, counts, strict=True):
            for key, job in row.jobs.items():
                seconds = _timed(job, count_of[key]) / count_of[key]
                row.best[key] = min(seconds, row.best.get(key, seconds))


def table(rows: list[Row]) -> list[str]:
    """Return the lines to print: microseconds for parsing and for building, and the ratio of the sums."""
    lines = [
        f"{'message':36s} {'bytes':>6s}  {'kraftsim':>15s} {'kio':>15s} {'kafka-python':>15s}   kio/ours  kpy/ours",
        f"{'us parse / build':>92s}",
    ]
    for row in rows:
        cells = [_cell(row, codec) for codec in ("ours", "kio", "kafka-python")]
        ratios = [f"{_ratio(row, codec):8.1f}x" if _ratio(row, codec) else f"{'-':>9s}" for codec in ("kio", "kafka-python")]
        lines.append(
            f"{row.name + ' v' + str(row.version):36s} {row.size_bytes:6d}  {cells[0]:>15s} {cells[1]:>15s} {cells[2]:>15s}  {' '.join(ratios)}"
        )
    for codec in ("kio", "kafka-python"):
        for jobs in (("parse",), ("build",), ("parse", "build")):
            ratios_of = [
                sum(row.best[codec, job] for job in jobs) / sum(row.best["ours", job] for job in jobs) for row in rows if (codec, "parse") in row.best
            ]
            if ratios_of:
                mean = exp(sum(map(log, ratios_of)) / len(ratios_of))
                spread = f"{min(ratios_of):.1f} - {max(ratios_of):.1f}"
                lines.append(f"{codec:>12s} / ours, {' + '.join(jobs):13s} {mean:5.2f}x  [{spread}], geometric mean of {len(ratios_of)} messages")
    return lines


def _row(cls: type, version: int) -> Row:
    codec = compiled(cls, version)
    message = _typical(codec.layout)
    frame = codec.encode(message)
    assert codec.parse(frame) == message
    jobs: dict[tuple[str, str], Job] = {
        ("ours", "parse"): lambda decode=codec.decode: decode(frame, 0),  # type: ignore[misc]
        ("ours", "build"): lambda encode=codec.encode: encode(message),  # type: ignore[misc]
    }
    jobs |= _kio_jobs(cls, version, frame) | _kafka_python_jobs(cls, version, frame)
    return Row(declaration_of(cls).name, version, len(frame), jobs)


def _versions(cls: type) -> list[int]:
    """Return the newest version that kio knows (else the newest), and the newest one without tagged fields."""
    declaration = declaration_of(cls)
    versions = range(declaration.versions.first, declaration.versions.last + 1)
    known = [version for version in versions if _kio_class(cls, version) is not None] or list(versions)
    plain = [version for version in known if version not in declaration.flexible]
    return sorted({*plain[-1:], known[-1]})


def _kio_class(cls: type, version: int) -> Any:
    declaration = declaration_of(cls)
    api_name = snake_case(declaration.name.removesuffix("Request").removesuffix("Response"))
    try:
        return getattr(importlib.import_module(f"kio.schema.{api_name}.v{version}.{declaration.kind}"), declaration.name)
    except (ImportError, AttributeError):
        return None


def _kio_jobs(cls: type, version: int, frame: bytes) -> dict[tuple[str, str], Job]:
    kio_class = _kio_class(cls, version)
    if kio_class is None:
        return {}
    from kio.serial import entity_reader, entity_writer

    read, write = entity_reader(kio_class), entity_writer(kio_class)
    entity, _ = read(frame, 0)

    def build() -> bytes:
        buffer = io.BytesIO()
        write(buffer, entity)
        return buffer.getvalue()

    assert build() == frame, f"kio {UNLIKE} for {cls.__name__} v{version}"
    return {("kio", "parse"): lambda: read(frame, 0), ("kio", "build"): build}


def _kafka_python_jobs(cls: type, version: int, frame: bytes) -> dict[tuple[str, str], Job]:
    rival = _kafka_python_classes().get(declaration_of(cls).name)
    if rival is None or not rival.min_version <= version <= rival.max_version:
        return {}
    message = rival.decode(frame, version=version)
    message._header = None
    assert bytes(message.encode(version=version)) == frame, f"kafka-python {UNLIKE} for {cls.__name__} v{version}"
    return {
        ("kafka-python", "parse"): lambda: rival.decode(frame, version=version),
        ("kafka-python", "build"): lambda: message.encode(version=version),
    }


def _kafka_python_classes(found: dict[str, Any] = {}) -> dict[str, Any]:  # noqa: B006
    if not found:
        import kafka.protocol

        for module_info in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
            if ".old" in module_info.name or "generate" in module_info.name:
                continue
            module = importlib.import_module(module_info.name)
            found |= {name: value for name, value in vars(module).items() if isinstance(value, type) and hasattr(value, "decode")}
    return found


def _typical(layout: StructureLayout) -> Any:
    """Return a message as it may look on a normal day: no error, no tagged fields, short names."""
    values = {item.name: _typical_value(item) for item in layout.fields}
    values |= {item.name: default_of(item.declared) for item in layout.tags}
    return layout.cls(**values)


def _typical_value(item: PresentField) -> object:
    match item.type:
        case StructureLayout() as layout:
            return _typical(layout)
        case ArrayLayout(StructureLayout() as element):
            return [_typical(element) for _ in range(LIST_SIZE)]
        case ArrayLayout(Primitive() as element):
            return [_typical_primitive(element, item.name) for _ in range(LIST_SIZE)]
        case Primitive() as primitive:
            return _typical_primitive(primitive, item.name)
    raise AssertionError(f"{item.name} has no wire type")


def _typical_primitive(primitive: Primitive, name: str) -> object:
    match primitive:
        case Primitive.STRING:
            return f"{name[:12]}-7"
        case Primitive.BYTES | Primitive.RECORDS:
            return memoryview(bytes(RECORDS_SIZE)) if primitive is Primitive.RECORDS else b"bytes"
        case Primitive.UUID:
            return bytes(range(16))
        case Primitive.BOOLEAN:
            return True
        case Primitive.FLOAT64:
            return 0.5
        case _ if "error_code" in name:
            return 0
        case Primitive.INT64 if "timestamp" in name or name.endswith("_time_ms"):
            return TIMESTAMP_MS
        case Primitive.INT8:
            return 1
        case _:
            return 107


def _batch_size(job: Job) -> int:
    """Return how often to run a job so that a batch takes long enough to be timed."""
    job()
    once = max(_timed(job, 5) / 5, 1e-8)
    return max(3, int(SECONDS_PER_BATCH / once))


def _timed(job: Job, count: int) -> float:
    gc.disable()
    started = perf_counter()
    for _ in range(count):
        job()
    seconds = perf_counter() - started
    gc.enable()
    return seconds


def _cell(row: Row, codec: str) -> str:
    if row.seconds(codec) is None:
        return "-"
    return f"{row.best[codec, 'parse'] * 1e6:.2f} / {row.best[codec, 'build'] * 1e6:.2f}"


def _ratio(row: Row, codec: str) -> float | None:
    theirs, ours = row.seconds(codec), row.seconds("ours")
    return theirs / ours if theirs and ours else None


if __name__ == "__main__":
    sys.exit(main())
