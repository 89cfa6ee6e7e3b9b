"""Converts the event logs of runs into a dataset, and reports what the logs lack.

Parsing JSON is the most expensive part of any query on a run, so it is done once. Chunks of files
are parsed by as many workers as there are; then each run is put into the order of time, slice by
slice. A killed node leaves a torn last line; a gap in a node's line numbers is worse, because
events are missing, and no verdict about that run may be ok.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kraftsim.analysis.assembly import Assembled, PieceSource, assemble
from kraftsim.analysis.dataset import (
    RUN_PREFIX,
    STAGING,
    DataFile,
    Dataset,
    IngestResult,
    LineGap,
    NoRun,
    RunManifest,
    SourceFile,
    dataset_of,
    fresh_name,
)
from kraftsim.analysis.places import FoundFile, LocalPlace, Place, Where, place_of
from kraftsim.analysis.reading import Chunk, ChunkContent, EventPiece, chunks_of, read_chunk
from kraftsim.analysis.staging import (
    IncarnationLines,
    ParsedChunk,
    Staged,
    lines_of,
    load,
    parse_into,
    samples_of,
)
from kraftsim.analysis.workers import ProcessWorkers, SparkWorkers, Workers
from kraftsim.events.catalogue import KINDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS_FILE: Final = "events.parquet"
"""The dataset of a run directory."""
EVENTS_DIRECTORY: Final = "events"
RUN_FILE: Final = "run.json"
IN_MEMORY_BYTES_MAX: Final = 48 * 1024 * 1024
"""Runs with smaller logs are read in this process: that takes less than starting another."""

Report = Callable[[str, int, int], None]
"""Called with a stage ('parse' in bytes, 'sort' in events), what is done of it, and its total."""


class NoEvents(ValueError):
    """A directory without event logs; the message is one line with the path."""


def no_report(stage: str, done: int, total: int) -> None:
    """Report nothing."""


def ingest_run(
    run: Where, *, spark: "SparkSession | None" = None, report: Report = no_report
) -> IngestResult:
    """Read all *.jsonl below RUN/events and write the dataset RUN/events.parquet.

    Raises NoEvents, or OSError if writing fails.
    """
    place = place_of(run)
    if isinstance(place, LocalPlace) and (place / EVENTS_FILE).is_file():
        (place / EVENTS_FILE).path.unlink()  # the layout of releases before 0.3
    (result,) = ingest_runs([place], place / EVENTS_FILE, spark=spark, report=report)
    return result


def ingest_runs(
    runs: Sequence[Where],
    dataset: Where,
    *,
    spark: "SparkSession | None" = None,
    report: Report = no_report,
    names: Sequence[str] | None = None,
) -> list[IngestResult]:
    """Read the event logs of runs into a dataset, each under the name of its directory; a run that
    it has is replaced. With `spark`, its tasks do the work. Runs and dataset may be remote: one
    process or job at a time writes the same run, several may write different ones.

    Raises NoEvents, ValueError for two runs of one name, or OSError if writing fails.
    """
    places = [place_of(run) for run in runs]
    labels = list(names) if names is not None else [_label(run) for run in places]
    twice = sorted({name for name in labels if labels.count(name) > 1})
    if twice:
        raise ValueError(f"two runs are called {', '.join(twice)}: a dataset needs distinct names")
    target = Dataset(dataset)
    for place in (target.root, *places):
        place.check()
    logs = [event_logs(run) for run in places]
    for run, files in zip(places, logs, strict=True):
        if not files:
            raise NoEvents(
                f"{run} holds no event log: there is no *.jsonl below {run / EVENTS_DIRECTORY}"
            )
    workers: Workers = SparkWorkers(spark) if spark is not None else ProcessWorkers()
    plan = [
        _Plan(run, name, files, target)
        for run, name, files in zip(places, labels, logs, strict=True)
    ]
    small = [each for each in plan if each.size_bytes <= IN_MEMORY_BYTES_MAX and spark is None]
    large = [each for each in plan if each not in small]
    done_bytes, all_bytes = 0, sum(each.size_bytes for each in plan)
    for each in small:
        each.finish_here()
        done_bytes += each.size_bytes
        report("parse", done_bytes, all_bytes)
    if large:
        with _staging(target.root, is_shared=spark is not None) as staging:
            _ingest_large(large, staging, workers, report, all_bytes)
    return [each.result for each in plan]


def _label(run: Place) -> str:
    return run.path.resolve().name if isinstance(run, LocalPlace) else run.name


class _Plan:
    """One run on its way into the dataset."""

    def __init__(self, run: Place, name: str, files: Sequence[FoundFile], dataset: Dataset) -> None:
        self.run, self.name, self.dataset = run, name, dataset
        self.paths = [str(run / file.path) for file in files]
        self.sources = [_source(file) for file in files]
        self.size_bytes = sum(source.size_bytes for source in self.sources)
        self.chunks = [
            chunk
            for path, source in zip(self.paths, self.sources, strict=True)
            for chunk in chunks_of(path, source.size_bytes)
        ]
        self.parsed: list[ParsedChunk] = []
        self._result: IngestResult | None = None

    @property
    def result(self) -> IngestResult:
        """The result, once the run is in the dataset."""
        assert self._result is not None, "it is finished"
        return self._result

    @property
    def facts(self) -> dict[str, object]:
        """The run's `run.json`, as it is; nothing if there is none or it is no JSON object."""
        with suppress(FileNotFoundError, IsADirectoryError, PermissionError, msgspec.DecodeError):
            facts = msgspec.json.decode((self.run / RUN_FILE).read())
            return facts if isinstance(facts, dict) else {}
        return {}

    def finish_here(self) -> None:
        """Read and write the run in this process."""
        read = self.run.many(read_chunk, self.chunks)
        contents = list(zip(self.chunks, read, strict=True))
        sources = [_in_memory(piece) for _, content in contents for piece in content.pieces]
        lines = [each for _, content in contents for each in lines_of(content.pieces)]
        counts = [_counted(chunk, content) for chunk, content in contents]
        directory = self.dataset.directory(self.name).name
        assembled = assemble(sources, self.name, self.dataset.root, directory)
        self.finish(assembled, lines, counts)

    def finish(
        self,
        assembled: Assembled,
        lines: Iterable[IncarnationLines],
        counts: Iterable[tuple[str, int, int]],
    ) -> None:
        """Commit the run; `counts` are torn bytes and unreadable lines by file."""
        torn: dict[str, int] = {}
        unreadable: dict[str, int] = {}
        for path, torn_bytes, unreadable_lines in counts:
            torn[path] = torn.get(path, 0) + torn_bytes
            unreadable[path] = unreadable.get(path, 0) + unreadable_lines
        files = tuple(
            msgspec.structs.replace(
                source, torn_bytes=torn[path], unreadable_lines=unreadable[path]
            )
            for path, source in zip(self.paths, self.sources, strict=True)
        )
        self._result = IngestResult(
            parquet=str(self.dataset.directory(self.name)),
            event_count=assembled.events,
            node_count=assembled.nodes,
            frames_paired=assembled.frames_paired,
            files=files,
            gaps=gaps_of(lines),
            unknown_kinds={
                kind: count for kind, count in assembled.kinds.items() if kind not in KINDS
            },
        )
        self.dataset.replace(
            RunManifest(
                run=self.name,
                ingest=self._result,
                kinds=assembled.kinds,
                files=assembled.files,
                facts=self.facts,
            )
        )


def _in_memory(piece: EventPiece) -> PieceSource:
    samples, last_t_ns = samples_of(piece)
    return PieceSource(
        piece.node,
        piece.incarnation,
        piece.kind,
        piece.table.num_rows,
        samples,
        last_t_ns,
        lambda: piece._replace(table=piece.table.combine_chunks()),
    )


def _counted(chunk: Chunk, content: ChunkContent) -> tuple[str, int, int]:
    return chunk.path, content.torn_bytes, content.unreadable_lines


# --------------------------------------------------------------------------------------------------
# Large runs: every worker parses chunks, then one worker per run sorts


class ParseTask(msgspec.Struct, frozen=True):
    """A chunk to parse, and the file for its pieces."""

    chunk: Chunk
    to: str
    number: int


class ParsedTask(msgspec.Struct, frozen=True):
    """The result of a `ParseTask`."""

    number: int
    parsed: ParsedChunk


class AssembleTask(msgspec.Struct, frozen=True):
    """The staged pieces of a run, to be sorted and written."""

    number: int
    run: str
    root: str
    directory: str
    staged: tuple[Staged, ...]


class AssembledTask(msgspec.Struct, frozen=True):
    """The result of an `AssembleTask`."""

    number: int
    files: tuple[DataFile, ...]
    kinds: dict[str, int]
    nodes: int
    events: int
    frames_paired: int


def parse_task(argument: bytes) -> bytes:
    """Do a `ParseTask`."""
    task = msgspec.json.decode(argument, type=ParseTask)
    return msgspec.json.encode(ParsedTask(task.number, parse_into(task.chunk, place_of(task.to))))


def assemble_task(argument: bytes) -> bytes:
    """Do an `AssembleTask`."""
    task = msgspec.json.decode(argument, type=AssembleTask)
    sources = [_on_disk(staged) for staged in task.staged]
    assembled = assemble(sources, task.run, place_of(task.root), task.directory)
    return msgspec.json.encode(AssembledTask(task.number, *assembled))


def _on_disk(staged: Staged) -> PieceSource:
    return PieceSource(
        staged.node,
        staged.incarnation,
        staged.kind,
        staged.rows,
        staged.samples,
        staged.last_t_ns,
        partial(load, staged),
    )


@contextmanager
def _staging(root: Place, *, is_shared: bool) -> Iterator[Place]:
    """Yield the directory for parsed pieces. It is in the dataset, unless that is remote and the
    workers are processes of this machine: then a local one saves the way to the store and back.
    """
    if not root.is_local and not is_shared:
        with tempfile.TemporaryDirectory(prefix="kraftsim-ingest-") as scratch:
            yield LocalPlace(Path(scratch))
        return
    staging = root / STAGING / fresh_name()
    try:
        yield staging
    finally:
        staging.delete_tree()
        if isinstance(root, LocalPlace):
            with suppress(OSError):  # another ingest uses it
                (root / STAGING).path.rmdir()


def _ingest_large(
    plans: Sequence[_Plan], staging: Place, workers: Workers, report: Report, all_bytes: int
) -> None:
    tasks: list[bytes] = []
    owner: list[_Plan] = []
    sizes: list[int] = []
    for plan in plans:
        for chunk in plan.chunks:
            number = len(tasks)
            tasks.append(
                msgspec.json.encode(
                    ParseTask(_absolute(chunk), _address(staging / f"{number:06}.arrows"), number)
                )
            )
            owner.append(plan)
            sizes.append(chunk.end - chunk.begin)
    found: dict[int, ParsedChunk] = {}
    done_bytes = all_bytes - sum(sizes)

    def parsed(result: bytes) -> None:
        nonlocal done_bytes
        each = msgspec.json.decode(result, type=ParsedTask)
        found[each.number] = each.parsed
        done_bytes += sizes[each.number]
        report("parse", done_bytes, all_bytes)

    module = "kraftsim.analysis.ingest"
    workers.run(f"{module}:parse_task", tasks, parsed)
    for number, plan in enumerate(owner):
        plan.parsed.append(found[number])
    events = sum(piece.rows for chunk in found.values() for piece in chunk.staged)
    sorted_events = 0

    def assembled(result: bytes) -> None:
        nonlocal sorted_events
        each = msgspec.json.decode(result, type=AssembledTask)
        plan = plans[each.number]
        plan.finish(
            Assembled(each.files, each.kinds, each.nodes, each.events, each.frames_paired),
            [lines for chunk in plan.parsed for lines in chunk.lines],
            [
                (chunk.path, each.torn_bytes, each.unreadable_lines)
                for chunk, each in zip(plan.chunks, plan.parsed, strict=True)
            ],
        )
        sorted_events += each.events
        report("sort", sorted_events, events)

    workers.run(
        f"{module}:assemble_task",
        [_assemble_argument(number, plan) for number, plan in enumerate(plans)],
        assembled,
    )


def _absolute(chunk: Chunk) -> Chunk:
    return chunk._replace(path=_address(place_of(chunk.path)))


def _address(place: Place) -> str:
    """Return the address of a place for a worker, which may have another working directory."""
    return str(place.path.absolute() if isinstance(place, LocalPlace) else place)


def _assemble_argument(number: int, plan: _Plan) -> bytes:
    task = AssembleTask(
        number=number,
        run=plan.name,
        root=_address(plan.dataset.root),
        directory=plan.dataset.directory(plan.name).name,
        staged=tuple(piece for chunk in plan.parsed for piece in chunk.staged),
    )
    return msgspec.json.encode(task)


# --------------------------------------------------------------------------------------------------
# What was read before, and what is missing


def ingested(
    run: Where, *, spark: "SparkSession | None" = None, report: Report = no_report
) -> IngestResult:
    """Return the facts of the dataset of a run directory, reading the logs first if they have
    changed or were never read; or those of a run of a dataset, by its directory DATASET/run=NAME.

    Raises NoEvents.
    """
    place = place_of(run)
    if place.name.startswith(RUN_PREFIX):
        with suppress(NoRun):
            _, manifest = dataset_of(place)
            return msgspec.structs.replace(manifest.ingest, parquet=str(place))
    dataset = Dataset(place / EVENTS_FILE)
    files = event_logs(place)
    with suppress(NoRun, FileNotFoundError, NotADirectoryError):
        manifests = list(dataset.manifests())
        if len(manifests) == 1:
            (manifest,) = manifests
            result = manifest.ingest
            if not files or [_source(file) for file in files] == [
                _as_found(file) for file in result.files
            ]:
                where = dataset.directory(manifest.run)
                return msgspec.structs.replace(result, parquet=str(where))
    if not files and Dataset(place).manifest_files():
        raise NoEvents(f"{place} is a dataset: name one of its runs, as {place / RUN_PREFIX}NAME")
    return ingest_run(place, spark=spark, report=report)


def event_logs(run: Where) -> list[FoundFile]:
    """Return the event log files of a run, sorted, by their paths from there."""
    place = place_of(run)
    return [
        file._replace(path=f"{EVENTS_DIRECTORY}/{file.path}")
        for file in (place / EVENTS_DIRECTORY).files(".jsonl")
    ]


def _source(file: FoundFile) -> SourceFile:
    return SourceFile(name=file.path, size_bytes=file.size_bytes, modified_ns=file.modified_ns)


def _as_found(file: SourceFile) -> SourceFile:
    return msgspec.structs.replace(file, torn_bytes=0, unreadable_lines=0)


def gaps_of(lines: Iterable[IncarnationLines]) -> tuple[LineGap, ...]:
    """Return one gap per node and incarnation whose line numbers are not 0, 1, 2, ... up to the
    highest one.
    """
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    repeated: dict[tuple[str, int], int] = {}
    for each in lines:
        key = (each.node, each.incarnation)
        found.setdefault(key, []).extend(each.ranges)
        repeated[key] = repeated.get(key, 0) + each.repeated
    gaps = []
    for key, ranges in sorted(found.items()):
        missing, again, first_missing = _missing(sorted(ranges))
        again += repeated[key]
        if missing or again:
            gaps.append(
                LineGap(
                    node=key[0],
                    incarnation=key[1],
                    first_missing_n=first_missing,
                    missing_count=missing,
                    repeated_count=again,
                )
            )
    return tuple(gaps)


def _missing(ranges: Iterable[tuple[int, int]]) -> tuple[int, int, int]:
    """Return how many numbers from 0 on are in no range and how many are in another one, too, and
    the first that is missing.
    """
    next_n, missing, again = 0, 0, 0
    first_missing: int | None = None
    for first, last in ranges:
        if first > next_n:
            missing += first - next_n
            first_missing = next_n if first_missing is None else first_missing
        again += max(0, min(last, next_n - 1) - first + 1)
        next_n = max(next_n, last + 1)
    return missing, again, next_n if first_missing is None else first_missing
