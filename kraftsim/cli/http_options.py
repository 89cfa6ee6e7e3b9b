"""The options `--http`, `--http-host` and `--http-token-file` of the verbs that serve HTTP
control."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from kraftsim.cli.failure import fail

if TYPE_CHECKING:
    from kraftsim.control.service import HttpPlan

Verb = TypeVar("Verb", bound=Callable[..., object])


def http_options(verb: Verb) -> Verb:
    """Add the options; the verb gets `http: int | None`, `http_host: str` and
    `http_token_file: Path | None`.
    """
    for option in (
        click.option(
            "--http-token-file",
            type=click.Path(dir_okay=False, path_type=Path),
            default=None,
            metavar="FILE",
            help="File with the token of --http.  [default: $KRAFTSIM_HTTP_TOKEN, or a new token "
            "that is printed]",
        ),
        click.option(
            "--http-host",
            default="127.0.0.1",
            show_default=True,
            metavar="ADDRESS",
            help="Address of --http. Anything but loopback lets other machines connect: the token "
            "is then sent unencrypted.",
        ),
        click.option(
            "--http",
            type=click.IntRange(0, 65535),
            default=None,
            metavar="PORT",
            help="Serve HTTP control, a live page and metrics on this port of 127.0.0.1; 0 picks "
            "a free one. Needs the extra `http`.",
        ),
    ):
        verb = option(verb)
    return verb


def http_plan(host: str, port: int | None, token_file: Path | None) -> "HttpPlan | None":
    """Return where HTTP is to be served, None if it is not; warn of an address that others can
    reach.
    """
    import os

    if port is None:
        return None
    from kraftsim.control.access import BadToken, HttpAddress, read_token
    from kraftsim.control.service import HttpPlan

    try:
        token = read_token(token_file, os.environ)
    except (BadToken, OSError) as trouble:
        fail(trouble)
    if not HttpAddress(host, port).is_loopback:
        click.echo(
            f"warning: {host} is not loopback: whatever reaches it and reads the token, which is "
            "sent unencrypted, controls this cluster",
            err=True,
        )
    return HttpPlan.of(host, port, token)
