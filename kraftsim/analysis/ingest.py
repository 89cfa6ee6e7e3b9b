"""Converts the event logs of runs into a dataset, and reports what the logs lack.

Parsing JSON is the most expensive part of any query on a run, so it is done once. Chunks of files
are parsed by as many workers as there are; then each run is put into the order of time, slice by
slice. A killed node leaves a torn last line; a gap in a node's line numbers is worse, because
events are missing, and no verdict about that run may be ok.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kraftsim.analysis.assembly import Assembled, PieceSource, assemble
from kraftsim.analysis.dataset import (
    STAGING,
    DataFile,
    Dataset,
    IngestResult,
    LineGap,
    NoRun,
    RunManifest,
    SourceFile,
)
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
    run: Path, *, spark: "SparkSession | None" = None, report: Report = no_report
) -> IngestResult:
    """Read all *.jsonl below RUN/events and write the dataset RUN/events.parquet.

    Raises NoEvents, or OSError if writing fails.
    """
    if (run / EVENTS_FILE).is_file():
        (run / EVENTS_FILE).unlink()  # the layout of releases before 0.3
    (result,) = ingest_runs([run], run / EVENTS_FILE, spark=spark, report=report)
    return result


def ingest_runs(
    runs: Sequence[Path],
    dataset: Path,
    *,
    spark: "SparkSession | None" = None,
    report: Report = no_report,
    names: Sequence[str] | None = None,
) -> list[IngestResult]:
    """Read the event logs of runs into a dataset, each under the name of its directory; a run that
    it has is replaced. With `spark`, its tasks do the work.

    Raises NoEvents, ValueError for two runs of one name, or OSError if writing fails.
    """
    labels = list(names) if names is not None else [run.resolve().name for run in runs]
    twice = sorted({name for name in labels if labels.count(name) > 1})
    if twice:
        raise ValueError(f"two runs are called {', '.join(twice)}: a dataset needs distinct names")
    logs = [event_logs(run) for run in runs]
    for run, paths in zip(runs, logs, strict=True):
        if not paths:
            raise NoEvents(
                f"{run} holds no event log: there is no *.jsonl below {run / EVENTS_DIRECTORY}"
            )
    workers: Workers = SparkWorkers(spark) if spark is not None else ProcessWorkers()
    target = Dataset(dataset)
    plan = [
        _Plan(run, name, paths, target) for run, name, paths in zip(runs, labels, logs, strict=True)
    ]
    small = [each for each in plan if each.size_bytes <= IN_MEMORY_BYTES_MAX and spark is None]
    large = [each for each in plan if each not in small]
    done_bytes, all_bytes = 0, sum(each.size_bytes for each in plan)
    for each in small:
        each.finish_here()
        done_bytes += each.size_bytes
        report("parse", done_bytes, all_bytes)
    if large:
        _ingest_large(large, target, workers, partial(report, "parse"), report, all_bytes)
    return [each.result for each in plan]


class _Plan:
    """One run on its way into the dataset."""

    def __init__(self, run: Path, name: str, paths: Sequence[Path], dataset: Dataset) -> None:
        self.run, self.name, self.paths, self.dataset = run, name, paths, dataset
        self.sources = [_source(run, path) for path in paths]
        self.size_bytes = sum(source.size_bytes for source in self.sources)
        self.chunks = [
            chunk
            for path, source in zip(paths, self.sources, strict=True)
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
        with suppress(OSError, msgspec.DecodeError):
            facts = msgspec.json.decode((self.run / RUN_FILE).read_bytes())
            return facts if isinstance(facts, dict) else {}
        return {}

    def finish_here(self) -> None:
        """Read and write the run in this process."""
        contents = [(chunk, read_chunk(chunk)) for chunk in self.chunks]
        sources = [_in_memory(piece) for _, content in contents for piece in content.pieces]
        lines = [each for _, content in contents for each in lines_of(content.pieces)]
        counts = [_counted(chunk, content) for chunk, content in contents]
        to = self.dataset.directory(self.name)
        unfinished = self.dataset.root / STAGING / to.name
        assembled = _assemble_into(sources, self.name, self.dataset.root, to, unfinished)
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
                source, torn_bytes=torn[str(path)], unreadable_lines=unreadable[str(path)]
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
        self.dataset.commit(
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


def _assemble_into(
    sources: Sequence[PieceSource],
    run: str,
    root: Path,
    to: Path,
    unfinished: Path,
    report: Callable[[int], None] = lambda events: None,
) -> Assembled:
    """Write the files of a run elsewhere first, and put them in the place of former ones when they
    are complete.
    """
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    assembled = assemble(sources, run, root, unfinished, report=report)
    shutil.rmtree(to, ignore_errors=True)
    unfinished.replace(to)
    with suppress(OSError):
        unfinished.parent.rmdir()
    before, after = unfinished.relative_to(root).as_posix(), to.relative_to(root).as_posix()
    return assembled._replace(
        files=tuple(
            msgspec.structs.replace(file, path=after + file.path.removeprefix(before))
            for file in assembled.files
        )
    )


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
    to: str
    unfinished: str
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
    return msgspec.json.encode(ParsedTask(task.number, parse_into(task.chunk, Path(task.to))))


def assemble_task(argument: bytes) -> bytes:
    """Do an `AssembleTask`."""
    task = msgspec.json.decode(argument, type=AssembleTask)
    assembled = _assemble_into(
        [_on_disk(staged) for staged in task.staged],
        task.run,
        Path(task.root),
        Path(task.to),
        Path(task.unfinished),
    )
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


def _ingest_large(
    plans: Sequence[_Plan],
    dataset: Dataset,
    workers: Workers,
    report_parsed: Callable[[int, int], None],
    report: Report,
    all_bytes: int,
) -> None:
    (dataset.root / STAGING).mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=dataset.root / STAGING))
    tasks: list[bytes] = []
    owner: list[_Plan] = []
    sizes: list[int] = []
    for plan in plans:
        for chunk in plan.chunks:
            number = len(tasks)
            tasks.append(
                msgspec.json.encode(
                    ParseTask(chunk, str(staging.absolute() / f"{number:06}.arrows"), number)
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
        report_parsed(done_bytes, all_bytes)

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
            [(each.source, each.torn_bytes, each.unreadable_lines) for each in plan.parsed],
        )
        sorted_events += each.events
        report("sort", sorted_events, events)

    workers.run(
        f"{module}:assemble_task",
        [_assemble_argument(number, plan, staging) for number, plan in enumerate(plans)],
        assembled,
    )
    shutil.rmtree(staging, ignore_errors=True)
    with suppress(OSError):
        staging.parent.rmdir()


def _assemble_argument(number: int, plan: _Plan, staging: Path) -> bytes:
    to = plan.dataset.directory(plan.name).absolute()
    task = AssembleTask(
        number=number,
        run=plan.name,
        root=str(plan.dataset.root.absolute()),
        to=str(to),
        unfinished=str(staging.absolute() / to.name),
        staged=tuple(piece for chunk in plan.parsed for piece in chunk.staged),
    )
    return msgspec.json.encode(task)


# --------------------------------------------------------------------------------------------------
# What was read before, and what is missing


def ingested(
    run: Path, *, spark: "SparkSession | None" = None, report: Report = no_report
) -> IngestResult:
    """Return the facts of the dataset of a run directory, reading the logs first if they have
    changed or were never read.

    Raises NoEvents.
    """
    dataset = Dataset(run / EVENTS_FILE)
    paths = event_logs(run)
    with suppress(NoRun, OSError):
        manifests = list(dataset.manifests())
        if len(manifests) == 1:
            (manifest,) = manifests
            result = manifest.ingest
            if not paths or [_source(run, path) for path in paths] == [
                _as_found(file) for file in result.files
            ]:
                where = dataset.directory(manifest.run)
                return msgspec.structs.replace(result, parquet=str(where))
    return ingest_run(run, spark=spark, report=report)


def event_logs(run: Path) -> list[Path]:
    """Return the event log files of a run, sorted."""
    return sorted((run / EVENTS_DIRECTORY).rglob("*.jsonl"))


def _source(run: Path, path: Path) -> SourceFile:
    status = path.stat()
    return SourceFile(
        name=path.relative_to(run).as_posix(),
        size_bytes=status.st_size,
        modified_ns=status.st_mtime_ns,
    )


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
