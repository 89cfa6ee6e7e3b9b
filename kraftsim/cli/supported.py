"""The scenarios that a verb runs which takes all of them."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kraftsim.lab.campaign.worker_pool import Terms


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
