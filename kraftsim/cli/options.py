"""Options that several verbs share: results as JSON, Kafka settings, releases, bugs; and the
scenarios of a verb that takes all of them.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import click
from click.core import ParameterSource

from kraftsim.cli.failure import Failure

if TYPE_CHECKING:
    from kraftsim.analysis.places import Place
    from kraftsim.lab.campaign.worker_pool import Terms

DIRECTORY = click.Path(file_okay=False, path_type=Path)
"""A directory that need not exist yet."""


class PlaceParameter(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.3
    """A directory of this machine, or the address of a remote one; the verb gets a `Place`."""

    name = "directory"

    def __init__(self, *, exists: bool = True) -> None:
        self._exists = exists

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> "Place":
        """Return the place. Fails for an address that cannot be used, and, unless a verb makes the
        directory, for one that does not exist.
        """
        from kraftsim.analysis.places import LocalPlace, Place, place_of

        if isinstance(value, Place):
            return value
        try:
            place = place_of(str(value))
            if isinstance(place, LocalPlace):
                click.Path(exists=self._exists, file_okay=False).convert(
                    str(place.path), param, ctx
                )
            else:
                place.check()
                if self._exists and not place.is_directory():
                    self.fail(f"there is nothing at {place}.", param, ctx)
        except OSError as trouble:
            raise Failure(str(trouble)) from trouble
        return place


PLACE = PlaceParameter()
NEW_PLACE = PlaceParameter(exists=False)

Verb = TypeVar("Verb", bound=Callable[..., object])


def json_option(verb: Verb) -> Verb:
    """Add `--json FILE`; the verb gets `json_file: Path | None` and passes it to `write_json`."""
    option = click.option(
        "--json",
        "json_file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Also write the result as JSON ('-' is standard output).",
    )
    return option(verb)


def inject_option(verb: Verb) -> Verb:
    """Add `--inject FAULT`, repeatable; the verb gets `injected: tuple[str, ...]`, texts of
    `kraftsim.lab.faults.request_fault_text`.
    """
    option = click.option(
        "--inject",
        "injected",
        multiple=True,
        metavar="FAULT",
        help="A fault of requests, such as 'EndTxn error=CONCURRENT_TRANSACTIONS times=3' (see "
        "`kraftsim inject --help`), on top of those of the seed. Repeatable.",
    )
    return option(verb)


def settings_option(verb: Verb) -> Verb:
    """Add `--set KEY=VALUE`, repeatable; the verb gets `settings: tuple[str, ...]` and passes them
    to `parse_settings`.
    """
    option = click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="A Kafka property for every node, for example log.segment.bytes=65536. Repeatable.",
    )
    return option(verb)


def properties_option(verb: Verb) -> Verb:
    """Add `--properties FILE` and `--ignore-unknown`; the verb gets `properties: Path | None` and
    `ignore_unknown: bool` and passes both to `settings_of`.
    """
    option = click.option(
        "--properties",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A broker's own server.properties: its settings apply to every node, except those of "
        "one node (id, addresses, directories). --set overrides them.",
    )
    return ignore_unknown_option(option(verb))


def settings_of(
    properties: Path | None, settings: Sequence[str], *, ignore_unknown: bool
) -> dict[str, str]:
    """Return the settings for every node: those of a properties file, and --set on top.

    Prints which keys are left out. Raises Failure that names every unknown key.
    """
    from kraftsim.cluster.own_properties import settings_of_all, text_of
    from kraftsim.server.config import known_keys, unknown_keys
    from kraftsim.server.config_keys import ConfigError
    from kraftsim.server.config_values import describe_unknown_keys

    chosen = parse_settings(settings)
    if properties is not None:
        from kraftsim.cli.properties import read_properties

        try:
            of_file, left_out = settings_of_all(read_properties(text_of(properties)))
        except ConfigError as trouble:
            raise Failure(str(trouble)) from trouble
        if left_out:
            click.echo(
                f"{properties}: left out, because they are of one node: {', '.join(left_out)}",
                err=True,
            )
        chosen = {**of_file, **chosen}
    if ignore_unknown:
        return known_settings(chosen)
    unknown = unknown_keys(chosen)
    if unknown:
        place = "" if properties is None else f"{properties}: "
        raise Failure(
            f"{place}{describe_unknown_keys(unknown, known_keys())}; --ignore-unknown leaves "
            f"{'it' if len(unknown) == 1 else 'them'} out"
        )
    return chosen


def ignore_unknown_option(verb: Verb) -> Verb:
    """Add `--ignore-unknown`; the verb gets `ignore_unknown: bool` and passes `known_settings`
    on.
    """
    option = click.option(
        "--ignore-unknown",
        is_flag=True,
        help="Ignore unknown properties, and print their names, instead of refusing to start.",
    )
    return option(verb)


def known_settings(properties: dict[str, str]) -> dict[str, str]:
    """Return the properties that are known, and print the names of the others."""
    from kraftsim.server.config import unknown_keys

    unknown = unknown_keys(properties)
    if unknown:
        click.echo(f"{', '.join(unknown)} were supplied but are not used", err=True)
    return {name: value for name, value in properties.items() if name not in unknown}


def release_option(verb: Verb) -> Verb:
    """Add `--release`; the verb gets `release: str`."""
    option = click.option(
        "--release",
        default="3.9",
        show_default=True,
        help="Release of Apache Kafka that the nodes emulate; see `kraftsim list releases`.",
    )
    return option(verb)


def known_release(name: str) -> str:
    """Return the name of a release. Raises Failure that lists them for an unknown one."""
    from kraftsim.releases.release import release

    try:
        return release(name).name
    except KeyError as unknown:
        raise Failure(str(unknown.args[0])) from unknown


def scenario_release_option(verb: Verb) -> Verb:
    """Add `--release` to a verb that runs scenarios; the verb gets `release: str`, empty if the
    option is not given.
    """
    option = click.option(
        "--release",
        default="",
        help="Release of Apache Kafka that the nodes start with; see `kraftsim list releases`. "
        "Default: that of the scenario, or 3.9.",
    )
    return option(verb)


def upgrade_path_options(verb: Verb) -> Verb:
    """Add `--from`, `--to` and `--path` to a verb that runs scenarios; the verb gets `upgrade_path:
    tuple[str, ...]`: empty, or two releases or more.
    """

    @click.option("--from", "from_release", metavar="RELEASE", default="", help="Upgrade from it.")
    @click.option(
        "--to",
        "to_release",
        metavar="RELEASE",
        default="",
        help="Upgrade to it, in one step.",
    )
    @click.option(
        "--path",
        "path",
        metavar="RELEASE,RELEASE[,...]",
        default="",
        help="Upgrade through these releases, the first one included.",
    )
    @functools.wraps(verb)
    def chosen(from_release: str, to_release: str, path: str, **options: object) -> object:
        if path and (from_release or to_release):
            raise Failure("give --path, or --from and --to")
        if bool(from_release) != bool(to_release):
            raise Failure("give --from and --to; the first release alone is --release")
        releases = path.split(",") if path else [from_release, to_release] if to_release else []
        if len(releases) == 1:
            raise Failure("--path has two releases or more, separated by commas")
        known = tuple(map(known_release, releases))
        _require_upwards(known)
        return verb(upgrade_path=known, **options)

    return cast(Verb, chosen)


def _require_upwards(path: Sequence[str]) -> None:
    """Raise Failure if a release does not follow the one before it."""
    from kraftsim.releases.release import known_releases

    order = [each.name for each in known_releases()]
    for former, later in itertools.pairwise(path):
        if order.index(later) <= order.index(former):
            raise Failure(f"{later} is not later than {former}")


def require_upgrade(name: str) -> None:
    """Raise Failure if a scenario does not upgrade through a path of releases."""
    from kraftsim.cluster.scenario import scenario, scenarios

    try:
        has_path = "hops" in scenario(name).workload
    except KeyError as unknown:
        raise Failure(str(unknown.args[0])) from unknown
    if not has_path:
        able = ", ".join(each.name for each in scenarios() if "hops" in each.workload)
        raise Failure(f"{name} does not upgrade through a path of releases; these do: {able}")


def scenario_size_options(verb: Verb) -> Verb:
    """Add `--controllers` and `--brokers` to a verb that runs scenarios; the verb gets both as `int
    | None`.
    """
    least_one = click.IntRange(min=1)
    controllers = click.option(
        "--controllers",
        type=least_one,
        default=None,
        help="Number of controllers. Default: that of the scenario.",
    )
    brokers = click.option(
        "--brokers",
        type=least_one,
        default=None,
        help="Number of brokers. Default: that of the scenario.",
    )
    return controllers(brokers(verb))


def bugs_option(verb: Verb) -> Verb:
    """Add `--bug`, repeatable; the verb gets `bugs: tuple[str, ...]`."""
    option = click.option(
        "--bug",
        "bugs",
        multiple=True,
        metavar="NAME",
        help="Inject a historical bug, for example KAFKA-10533; see `kraftsim list bugs`. "
        "Repeatable.",
    )
    return option(verb)


def codec_option(verb: Verb) -> Verb:
    """Add `--codec`, which takes effect when it is parsed, in this process and in those that it
    starts.
    """

    def choose(context: click.Context, parameter: click.Parameter, form: str) -> str:
        from protocol.codec.choice import choose_codec

        if context.get_parameter_source(parameter.name or "") is not ParameterSource.DEFAULT:
            choose_codec(form)
        return form

    option = click.option(
        "--codec",
        type=click.Choice(["compiled", "construct"]),
        default="compiled",
        show_default=True,
        expose_value=False,
        callback=choose,
        help="Compile the construct trees of all messages, or let construct interpret them; the "
        "bytes are the same.",
    )
    return option(verb)


def extension_option(verb: Verb) -> Verb:
    """Add `--extension PATH`, repeatable, which takes effect when it is parsed."""
    option = click.option(
        "--extension",
        "extensions",
        multiple=True,
        metavar="PATH",
        is_eager=True,
        expose_value=False,
        callback=load_extensions,
        help="A Python file, a directory of them, or an installed module with scenarios, "
        "invariants, faults, bugs or releases of your own. Repeatable.",
    )
    return option(verb)


def load_extensions(
    context: click.Context, parameter: click.Parameter, names: tuple[str, ...]
) -> None:
    """Load what an option names, and check it; fails with one line."""
    if names:
        from kraftsim.cli.kinds import require_valid
        from kraftsim.extensions import ExtensionError, load

        try:
            for name in names:
                for extension in load(name):
                    require_valid(extension)
        except ExtensionError as trouble:
            raise Failure(str(trouble)) from trouble


def work_option(verb: Verb) -> Verb:
    """Add `--work NAME=NUMBER`, repeatable; the verb gets `work: tuple[str, ...]` and passes them
    to `parse_workload`.
    """
    option = click.option(
        "--work",
        multiple=True,
        metavar="NAME=NUMBER",
        help="A workload parameter, for example hops=1; `kraftsim scenario NAME --help` lists "
        "them. Repeatable.",
    )
    return option(verb)


def run_argument(verb: Verb) -> Verb:
    """Add the argument RUN, the directory of a run; the verb gets `run: Place`."""
    return click.argument("run", type=PLACE)(verb)


def parse_settings(settings: Sequence[str]) -> dict[str, str]:
    """Return KEY=VALUE texts as a mapping; the last one of a key wins.

    Raises Failure for a text without '='.
    """
    pairs = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise Failure(f"--set {text}: write it as KEY=VALUE")
        pairs[key.strip()] = value.strip()
    return pairs


def parse_workload(texts: Sequence[str]) -> dict[str, int]:
    """Return NAME=NUMBER texts as a mapping; the last one of a name wins.

    Raises Failure for anything else.
    """
    parameters = {}
    for text in texts:
        name, _, number = text.partition("=")
        if not number.strip().isdecimal():
            raise Failure(f"--work {text}: write it as NAME=NUMBER")
        parameters[name.strip()] = int(number)
    return parameters


def write_json(json_file: Path | None, value: object) -> None:
    """Write a struct, dataclass, or mapping as indented JSON, if a file is given."""
    if json_file is None:
        return
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
    if str(json_file) == "-":
        click.echo(text, nl=False)
        return
    try:
        json_file.write_bytes(text)
    except OSError as trouble:
        raise Failure(f"--json {json_file}: {trouble.strerror}") from trouble


class Described(Protocol):
    """A result that can be printed line by line."""

    def lines(self) -> Iterable[str]:
        """Return the human-readable lines."""
        ...


def print_lines(result: Described) -> None:
    """Print the lines of a result."""
    for line in result.lines():
        click.echo(line)


def supported_scenarios(terms: "Terms") -> tuple[str, ...]:
    """Return every scenario that supports the release and the numbers of nodes that are given;
    print which are skipped.

    Raises KeyError for an unknown release.
    """
    from kraftsim.cluster.scenario import scenarios
    from kraftsim.cluster.spec import RELEASE_KEY
    from kraftsim.releases.release import release

    asked = terms.settings.get(RELEASE_KEY, terms.release)
    line = release(asked).name if asked else ""
    unsupported = [each for each in scenarios() if line and not each.supports_release(line)]
    unfit = [
        each
        for each in scenarios()
        if each not in unsupported and not each.fits(terms.controllers, terms.brokers)
    ]
    for why, left_out in (
        (f"release {line} is not supported by", unsupported),
        ("this number of nodes is not supported by", unfit),
    ):
        if left_out:
            click.echo(f"skipped: {why} {', '.join(each.name for each in left_out)}", err=True)
    return tuple(each.name for each in scenarios() if each not in unsupported and each not in unfit)
