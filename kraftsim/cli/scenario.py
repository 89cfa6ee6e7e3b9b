"""`kraftsim scenario`: runs one scenario, in one mode, with one seed."""

from pathlib import Path

import click

from kraftsim.cli.failure import VIOLATED, fail
from kraftsim.cli.on_apache import audit_disks, on_options, require_no_other_nodes, target_of
from kraftsim.cli.options import (
    DIRECTORY,
    bugs_option,
    codec_option,
    extension_option,
    inject_option,
    json_option,
    parse_workload,
    properties_option,
    require_upgrade,
    scenario_release_option,
    scenario_size_options,
    settings_of,
    settings_option,
    upgrade_path_options,
    work_option,
    write_json,
)

NAME = "kraftsim.cli.scenario.NAME"
"""Key of `click.Context.meta`: the first argument, unless it is an option."""


class NamedScenario(click.Command):
    """A command whose help shows the scenario if a scenario is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the first argument for `format_help`: `--help` ends the parsing before NAME."""
        if args and not args[0].startswith("-"):
            ctx.meta[NAME] = args[0]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the scenario's releases, sizes and parameters above the options."""
        if NAME not in ctx.meta:
            super().format_help(ctx, formatter)
            return
        from kraftsim.cli.kind_tables import facts_of
        from kraftsim.cli.kinds import listing
        from kraftsim.cluster.scenario import scenario as named

        try:
            found = named(ctx.meta[NAME])
        except KeyError as unknown:
            fail(unknown)
        facts = facts_of(found, dict(listing("scenarios"))[found.name])
        formatter.write_usage(ctx.command_path, f"{ctx.meta[NAME]} --out DIRECTORY [OPTIONS]")
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(facts.about)
        with formatter.section("Scenario"):
            formatter.write_dl(list(facts.help_rows()))
        if facts.parameters:
            with formatter.section("Parameters (--work NAME=NUMBER)"):
                formatter.write_dl(list(facts.parameter_rows()))
        self.format_options(ctx, formatter)


@click.command(
    cls=NamedScenario,
    epilog="""\b
Examples:
  kraftsim scenario producer_ids_survive_failover --seed 7 --out runs/seven
  kraftsim scenario producer_ids_survive_failover --mode processes --out runs/real
  kraftsim scenario producer_ids_survive_failover --seed 7 --codec construct --out runs/interpreted
  kraftsim scenario delayed_end_txn --inject 'EndTxn drop=reply nth=2' --out runs/lost
  kraftsim scenario rolling_upgrade --from 3.6 --to 4.1 --out runs/upgrade
  kraftsim scenario rolling_upgrade --path 3.6,3.9,4.1 --out runs/steps
  kraftsim scenario rolling_upgrade --from 3.6 --to 4.1 --properties server.properties \\
      --mode processes --client 'python app.py' --out runs/mine
  kraftsim scenario partition_leader_failover_idempotent --controllers 5 --brokers 5 --seed 3 \\
      --out runs/large
  kraftsim scenario exactly_once_under_faults --on apache:4.1.2 --out runs/apache
  kraftsim scenario ./my_scenario.py --seed 1 --out runs/mine    # see kraftsim new
  kraftsim scenario rolling_upgrade --help      # its releases, sizes and parameters
  kraftsim list scenarios --long""",
)
@click.argument("name")
@click.option(
    "--mode",
    type=click.Choice(["sim", "processes", "embedded"]),
    default="sim",
    show_default=True,
    help="Virtual time, separate processes, or one process.",
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    help="Seed of the fault schedule and of all random choices.",
)
@click.option(
    "--out", type=DIRECTORY, required=True, help="Directory for run.json, event logs and disks."
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    metavar="COMMAND",
    help="Run an own program beside the scenario (--mode processes or embedded): it gets the "
    "address in KAFKA_BOOTSTRAP_SERVERS and KRAFTSIM_BOOTSTRAP. Repeatable.",
)
@click.option(
    "--restart-clients", is_flag=True, help="Start a program of --client again when it ends."
)
@on_options
@click.option("-v", "--verbose", is_flag=True, help="Print the result of every invariant.")
@scenario_release_option
@upgrade_path_options
@scenario_size_options
@bugs_option
@inject_option
@properties_option
@settings_option
@codec_option
@work_option
@extension_option
@json_option
def scenario(
    name: str,
    mode: str,
    seed: int,
    out: Path,
    clients: tuple[str, ...],
    restart_clients: bool,
    on: str | None,
    kafka_home: Path | None,
    verbose: bool,
    release: str,
    upgrade_path: tuple[str, ...],
    controllers: int | None,
    brokers: int | None,
    bugs: tuple[str, ...],
    injected: tuple[str, ...],
    properties: Path | None,
    ignore_unknown: bool,
    settings: tuple[str, ...],
    work: tuple[str, ...],
    json_file: Path | None,
) -> int:
    """Run a scenario: in virtual time, as processes, or embedded.

    Writes event logs (*.jsonl) and run.json below --out. Exits 1 on an invariant violation or an
    aborted run, or when a program of --client ended with an error. `kraftsim scenario NAME --help`
    shows the releases, sizes and parameters of one
    scenario.
    """
    from msgspec import structs

    from kraftsim.lab.explore.run import run_scenario
    from kraftsim.lab.explore.upgrade_course import upgrade_course

    if on is not None or kafka_home is not None:
        require_no_other_nodes(mode, release, bugs, upgrade_path)
    chosen = settings_of(properties, settings, ignore_unknown=ignore_unknown)
    if upgrade_path:
        require_upgrade(name)
        release = upgrade_path[0]
        chosen["kraftsim.upgrade.path"] = ",".join(upgrade_path[1:])
    try:
        result = run_scenario(
            name,
            mode=mode,
            seed=seed,
            out=out,
            release=release,
            bugs=bugs,
            settings=chosen,
            work=parse_workload(work),
            controllers=controllers,
            brokers=brokers,
            injected=injected,
            clients=clients,
            restarts_clients=restart_clients,
            on=target_of(on, kafka_home),
        )
    except (KeyError, ValueError, OSError, RuntimeError) as trouble:
        fail(trouble)
    result = structs.replace(result, course=upgrade_course(out / "events"))
    for line in result.lines(verbose=verbose):
        click.echo(line)
    code = audit_disks(result)
    write_json(json_file, result)
    return VIOLATED if any(each.has_failed for each in result.clients) else code
