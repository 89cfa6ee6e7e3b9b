"""`kraftsim proxy`: a proxy in front of any cluster, with faults of requests."""

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftsim.cli.failure import OK, Failure, fail
from kraftsim.cli.http_options import http_options, http_plan
from kraftsim.cli.options import DIRECTORY
from kraftsim.cli.properties import read_properties

if TYPE_CHECKING:
    from ssl import SSLContext

    from kraftsim.cluster.proxy.upstream.upstream_proxy import UpstreamNode, UpstreamProxy
    from kraftsim.control.controlled_upstream import UpstreamControl
    from kraftsim.control.service import HttpPlan
    from kraftsim.lab.faults.rules_request_faults import RequestFault, RequestHit
    from kraftsim.server.security.login import LinkSecurity

ALL_ADDRESSES = ("0.0.0.0", "::")
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(
    epilog="""\b
Examples:
  kraftsim proxy --upstream kafka.example:9092               # clients use 127.0.0.1:19092
  kraftsim proxy --upstream 127.0.0.1:9092 --inject 'EndTxn error=CONCURRENT_TRANSACTIONS times=3'
  kraftsim proxy --upstream 127.0.0.1:9092 --inject 'Produce drop=reply topic=orders nth=2'
  kraftsim proxy --upstream kafka.example:9093 --upstream-tls --upstream-ca ca.pem
  kraftsim proxy --upstream 127.0.0.1:9092 --tls-cert server.pem --tls-key server.key
  kraftsim proxy --upstream 127.0.0.1:9092 --http 8080       # faults and a live page by HTTP
  kraftsim proxy --upstream 127.0.0.1:9092 --data runs/real --read-back
  kraftsim analyze runs/real
  kraftsim proxy --upstream 127.0.0.1:9092 --capture talk.pcap && kraftsim decode talk.pcap
  kraftsim proxy --upstream 127.0.0.1:9092 --host 0.0.0.0 --advertised-host test-box --port 9192

\b
It runs until Ctrl-C or SIGTERM. The first line is the bootstrap.servers for clients.
Exit codes: 0 it was stopped, 3 it could not start."""
)
@click.option(
    "--upstream",
    required=True,
    metavar="HOST:PORT[,HOST:PORT]",
    help="Bootstrap servers of the cluster. Each gets a port of the proxy.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=19092,
    show_default=True,
    help="First port to listen on; each further broker has the next free one. 0: any free ports.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. Other machines can connect unless it is loopback.",
)
@click.option(
    "--advertised-host",
    default=None,
    metavar="HOST",
    help="Name of the proxy in the responses that clients get.  [default: that of --host]",
)
@click.option("--tls-cert", type=FILE, help="Certificate chain (PEM): clients use TLS.")
@click.option("--tls-key", type=FILE, help="Its private key, if it is in another file.")
@click.option("--upstream-tls", is_flag=True, help="The cluster's listener uses TLS.")
@click.option(
    "--upstream-ca", type=FILE, help="Certificates (PEM) to trust instead of the system's."
)
@click.option("--upstream-cert", type=FILE, help="Client certificate (PEM) for the cluster.")
@click.option("--upstream-key", type=FILE, help="Its private key, if it is in another file.")
@click.option(
    "--upstream-config",
    type=FILE,
    help="Properties of a Kafka client (sasl.mechanism, sasl.jaas.config): the login with which "
    "the proxy itself reads, for --http and --read-back. Clients have their own.",
)
@click.option(
    "--inject",
    "faults",
    multiple=True,
    metavar="FAULT",
    help="A fault of requests, as in docs/request-faults.md. Repeatable.",
)
@click.option(
    "--data",
    type=DIRECTORY,
    default=None,
    help="Record what clients send and get as an event log below this directory, for analyze, "
    "watch and report. Reduces throughput.",
)
@http_options
@click.option(
    "--read-back",
    is_flag=True,
    help="With --data: at the end read the partitions that clients wrote to, so that it can be "
    "judged whether what was acknowledged is there, once.",
)
@click.option(
    "--capture",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    metavar="FILE",
    help="Write what clients send and get as a packet capture (pcap), in plain text behind TLS: "
    "for decode, Wireshark and tshark.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of random choices.")
def proxy(
    upstream: str,
    port: int,
    host: str,
    advertised_host: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    upstream_tls: bool,
    upstream_ca: Path | None,
    upstream_cert: Path | None,
    upstream_key: Path | None,
    upstream_config: Path | None,
    faults: tuple[str, ...],
    data: Path | None,
    http: int | None,
    http_host: str,
    http_token_file: Path | None,
    capture: Path | None,
    read_back: bool,
    seed: int,
) -> int:
    """Put a proxy in front of any Kafka cluster, and inject faults into its requests.

    Clients connect to the proxy instead of the brokers; the addresses in the responses are replaced
    by those of the proxy. Everything else passes unchanged: also SASL, which clients and brokers do
    with each other. For TLS see --tls-cert and --upstream-tls: the proxy reads requests, so it
    cannot pass TLS on unread.
    """
    from kraftsim.cluster.directories import RunDirectory
    from kraftsim.cluster.proxy.upstream.tls_contexts import client_context, node_context
    from kraftsim.cluster.proxy.upstream.upstream_proxy import UpstreamPlan, UpstreamProxy
    from kraftsim.cluster.readiness import ClusterFailed
    from kraftsim.lab.faults.request_fault_text import parse_request_fault
    from kraftsim.world.real.runner import run_node

    try:
        if read_back and data is None:
            raise ValueError("--read-back needs --data")
        if host in ALL_ADDRESSES and advertised_host is None:
            raise ValueError(f"--host {host} needs --advertised-host: clients cannot connect to it")
        injected = [parse_request_fault(text) for text in faults]
        plan = UpstreamPlan(
            upstream=addresses_of(upstream),
            host=host,
            advertised_host=advertised_host or host,
            port=port,
            seed=seed,
        )
        directory = RunDirectory(data.absolute()) if data is not None else None
        client_tls = client_context(tls_cert, tls_key)
        node_tls = node_context(upstream_tls, upstream_ca, upstream_cert, upstream_key)
        security = _own_security(node_tls, upstream_config)
    except (ValueError, OSError) as trouble:
        fail(trouble)

    http_at = http_plan(http_host, http, http_token_file)

    async def serve(stopping: asyncio.Event) -> int:
        control = _control(http_at)
        proxy = UpstreamProxy(
            plan,
            asyncio.get_running_loop(),
            client_tls=client_tls,
            node_tls=node_tls,
            own_security=security,
            directory=directory,
            capture=capture,
        )
        await proxy.open()
        _announce(proxy)
        if control is not None:
            await control.open(proxy, directory=directory)
            click.echo(control.line)
        for fault in injected:
            _inject(proxy, fault)
        await _either(stopping, proxy.has_failed)
        if control is not None:
            await control.close()
        await proxy.close()
        if proxy.trouble is not None:
            raise proxy.trouble
        if read_back:
            click.echo(f"final logs read: {await proxy.read_back()}")
        return OK

    try:
        return run_node(serve)
    except (ClusterFailed, OSError) as trouble:
        fail(trouble)


def _own_security(tls: "SSLContext | None", config: Path | None) -> "LinkSecurity | None":
    """Take what --upstream-config names. Raises ValueError."""
    from kraftsim.cluster.proxy.upstream.tls_contexts import own_security

    return own_security(tls, {} if config is None else read_properties(config.read_text()))


def _control(plan: "HttpPlan | None") -> "UpstreamControl | None":
    """Take the address of --http, if it is given. Raises ClusterFailed."""
    if plan is None:
        return None
    from kraftsim.control.controlled_upstream import UpstreamControl

    return UpstreamControl(plan)


def addresses_of(text: str) -> tuple[tuple[str, int], ...]:
    """Parse `HOST:PORT[,HOST:PORT]`. Raises Failure."""
    found = []
    for word in text.split(","):
        host, colon, port = word.strip().rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise Failure(f"{word.strip()!r} is not an address: write --upstream HOST:PORT")
        found.append((host.removeprefix("[").removesuffix("]"), int(port)))
    return tuple(found)


def _announce(proxy: "UpstreamProxy") -> None:
    """Print the addresses of the proxy, and from now on what is new."""
    click.echo(f"bootstrap.servers={proxy.bootstrap}")
    for node in proxy.nodes:
        _print_node(node, proxy.address_of(node))
    proxy.on_node = _print_node
    proxy.on_notice = partial(click.echo, err=True)


def _print_node(node: "UpstreamNode", address: str) -> None:
    from kraftsim.cluster.proxy.upstream.upstream_proxy import shown_address

    click.echo(f"{node.name:<12} {address} -> {shown_address((node.host, node.port))}")


async def _either(*events: asyncio.Event) -> None:
    """Return when one of the events is set."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        for first in asyncio.as_completed(waiting):
            await first
            return
    finally:
        for each in waiting:
            each.cancel()


def _inject(proxy: "UpstreamProxy", fault: "RequestFault") -> None:
    def on_hit(hit: "RequestHit") -> None:
        click.echo(f"fault {number}: {fault}: {hit}")

    number = proxy.add_fault(fault, on_hit)
    click.echo(f"fault {number}: {fault}")
