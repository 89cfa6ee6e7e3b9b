"""`kraftsim up`: a cluster of processes on this machine, in the foreground or detached."""

from pathlib import Path

import click

from kraftsim.cli.failure import fail
from kraftsim.cli.node_log import log_options
from kraftsim.cli.options import DIRECTORY, bugs_option, ignore_unknown_option, known_settings, parse_settings, release_option, settings_option


@click.command(
    epilog="""\b
Examples:
  kraftsim up                                        one controller, three brokers, clients at 127.0.0.1:9092
  kraftsim up --brokers 1 --port 19092 --data runs/small
  kraftsim up --zookeeper --release 2.8              one ZooKeeper server, three brokers, no controllers
  kraftsim up --release 3.5 --set log.segment.bytes=65536
  kraftsim up --data runs/first --detach && kraftsim down --data runs/first
  kraftsim up --proxy --detach && kraftsim cut broker-1 && kraftsim heal
  kraftsim up --log-format json --log-level debug    what the nodes log, in runs/up/logs
  kraftsim kill broker-1 && kraftsim restart broker-1"""
)
@click.option("--controllers", default=None, type=int, help="How many controllers.  [default: 1, with --zookeeper 0]")
@click.option(
    "--zookeeper", is_flag=True, help="Brokers as they were before KRaft, with a ZooKeeper server; controllers are those that take over from it."
)
@click.option("--brokers", default=3, show_default=True, help="How many brokers.")
@click.option("--port", default=9092, show_default=True, help="Port of the first broker; the next ones follow, controllers listen 100 higher.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="The address that nodes listen on. Anything but loopback opens the cluster to others."
)
@click.option("--data", type=DIRECTORY, default=Path("runs/up"), show_default=True, help="Where disks, logs and events go.")
@click.option("--detach", is_flag=True, help="Return as soon as every broker answers.")
@click.option(
    "--proxy", is_flag=True, help="Put a proxy in front of every node, so that `kraftsim cut`, `slow` and `heal` can be used; it costs speed."
)
@click.option("--seed", default=0, show_default=True, help="Seed of what the nodes draw by chance.")
@release_option
@bugs_option
@ignore_unknown_option
@settings_option
@log_options
def up(
    controllers: int | None,
    zookeeper: bool,
    brokers: int,
    port: int,
    host: str,
    data: Path,
    detach: bool,
    proxy: bool,
    seed: int,
    release: str,
    bugs: tuple[str, ...],
    ignore_unknown: bool,
    settings: tuple[str, ...],
) -> int:
    """Start a cluster of processes on this machine.

    Prints one line with the bootstrap address when every broker answers, then stays until SIGTERM or Ctrl-C and stops the nodes cleanly.
    While it runs, `kraftsim kill|restart|pause|resume NODE...` does things to its nodes, and with --proxy `kraftsim cut|slow|heal` to what lies
    between them.
    """
    from kraftsim.cluster.readiness import ClusterFailed
    from kraftsim.cluster.spec import ClusterSpec, SpecError
    from kraftsim.cluster.supervise import up as bring_up
    from kraftsim.node.config_keys import ConfigError

    given = parse_settings(settings)
    try:
        spec = ClusterSpec(
            controllers=controllers if controllers is not None else 0 if zookeeper else 1,
            zookeeper=zookeeper,
            brokers=brokers,
            port=port,
            host=host,
            release=release,
            bugs=bugs,
            seed=seed,
            behind_proxy=proxy,
            run=data.name or "up",
            settings=known_settings(given) if ignore_unknown else given,
        )
        return bring_up(spec, data, detach, click.echo)
    except (SpecError, ConfigError, ClusterFailed, KeyError, OSError) as trouble:
        fail(trouble)
