"""The options for a run on nodes of Apache Kafka, and the audit of their disks after it."""

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click
from click.core import ParameterSource

from kraftsim.cli.failure import VIOLATED, Failure

if TYPE_CHECKING:
    from kraftsim.audit.report import AuditReport
    from kraftsim.cluster.apache_kafka.target import ApacheTarget
    from kraftsim.lab.explore.record import RunResult

Verb = TypeVar("Verb", bound=Callable[..., object])
AUDIT_FILE: Final = "audit.json"
AUDIT_PAGE: Final = "audit.html"


def on_options(verb: Verb) -> Verb:
    """Add `--on apache:VERSION` and `--kafka-home DIR`; the verb gets `on: str | None` and
    `kafka_home: Path | None` and passes both to `target_of`.
    """
    on = click.option(
        "--on",
        metavar="apache:VERSION",
        default=None,
        help="Run it on nodes of this release of Apache Kafka instead of kraftsim's, for example "
        "apache:4.1.2; they come from Maven and need Java 17 or newer.",
    )
    home = click.option(
        "--kafka-home",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="DIR",
        default=None,
        help="An installation of Apache Kafka for --on, instead of Maven.",
    )
    return on(home(verb))


def target_of(on: str | None, kafka_home: Path | None) -> "ApacheTarget | None":
    """Return the release of Apache Kafka that --on and --kafka-home name; None without them.

    Raises ValueError and ApacheKafkaMissing: one line.
    """
    if on is None and kafka_home is None:
        return None
    from kraftsim.cluster.apache_kafka.target import PREFIX, apache_target

    return apache_target(on or PREFIX, kafka_home)


def require_no_other_nodes(
    mode: str, release: str, bugs: tuple[str, ...], upgrade_path: tuple[str, ...]
) -> None:
    """Refuse options of kraftsim's own nodes beside --on. Raises Failure."""
    source = click.get_current_context().get_parameter_source("mode")
    if source is not ParameterSource.DEFAULT and mode != "processes":
        raise Failure(f"--on runs processes of Apache Kafka: leave --mode {mode} out")
    if release:
        raise Failure(f"--on names the release: leave --release {release} out")
    if upgrade_path:
        raise Failure(
            "--on names the first release, and the scenario chooses the others: leave --from, --to "
            "and --path out"
        )
    if bugs:
        raise Failure(
            f"--bug {bugs[0]} replaces a part of kraftsim's nodes: with --on, name a release of "
            "Apache Kafka that has the bug"
        )


def audit_disks(result: "RunResult", *, quiet: bool = False) -> int:
    """Audit the log directories of a run on Apache Kafka, and print what was found; return the
    exit code of the run: 1 for a violated invariant, an aborted run or a defect.

    Writes audit.json and audit.html into the run's directory.
    """
    is_bad = bool(result.violations or result.trouble is not None)
    if not result.on or result.out is None:
        return VIOLATED if is_bad else 0
    found = _audited(Path(result.out))
    if found is None:
        lines = ["  disks: not audited: pip install 'kraftsim[analysis]'"]
    else:
        lines = [f"  disks: {found.sentence}"]
        lines += [
            f"  disks: {rule.severity} {rule.name}: {rule.defect_count}, {rule.meaning}"
            for rule in found.rules
            if rule.defect_count
        ]
        lines += [f"  disks: unknown because {each}" for each in found.unknown_because]
        is_bad = is_bad or found.outcome.value == "defect"
    if not quiet:
        for line in lines:
            click.echo(line)
    return VIOLATED if is_bad else 0


def _audited(run: Path) -> "AuditReport | None":
    """Audit the disks of a run; None if what an audit needs is not installed."""
    if importlib.util.find_spec("duckdb") is None or importlib.util.find_spec("pyarrow") is None:
        return None
    import tempfile

    import msgspec

    from kraftsim.analysis.engines import Engine
    from kraftsim.audit.audit import AuditRequest, audit
    from kraftsim.audit.page import page_of

    directories = tuple(
        str(each.parent) for each in sorted((run / "data").glob("*/meta.properties"))
    )
    request = AuditRequest(
        directories=directories, now_ms=time.time_ns() // 1_000_000, engine=Engine.DUCKDB
    )
    with tempfile.TemporaryDirectory(prefix="kraftsim-audit-") as tables:
        found = audit(request, Path(tables))
    (run / AUDIT_FILE).write_bytes(msgspec.json.encode(found))
    (run / AUDIT_PAGE).write_text(page_of(found), encoding="utf-8")
    return found
