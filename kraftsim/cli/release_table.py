"""The columns of `kraftsim list releases`."""

from kraftsim.cli.kinds import first_sentence
from kraftsim.releases.release import Release
from protocol.api_keys import ApiKey


def columns(release: Release) -> tuple[str, ...]:
    """Return line, patch, modes, newest level, and summary."""
    modes = [
        name
        for name, has in (("zookeeper", release.has_zookeeper_mode), ("kraft", release.has_kraft))
        if has
    ]
    about = first_sentence(release.about)
    return release.name, release.patch, ",".join(modes), release.metadata_version_name, about


def as_json(release: Release) -> dict[str, object]:
    """Return everything: `apis` by listener, each API with its first and last version."""
    listeners = {
        "zkBroker": release.zookeeper_apis,
        "broker": release.broker_apis,
        "controller": release.controller_apis,
    }
    return {
        "name": release.name,
        "about": columns(release)[-1],
        "patch": release.patch,
        "newest_level": release.metadata_version_name,
        "features": {name: list(levels) for name, levels in release.supported_features.items()},
        "traits": [
            {
                "name": trait.name,
                "why": trait.why,
                "since": trait.since_release or trait.since_level,
            }
            for trait in release.traits
        ],
        "apis": {
            listener: {_name(key): list(versions) for key, versions in apis.items()}
            for listener, apis in listeners.items()
            if apis
        },
    }


def _name(key: ApiKey) -> str:
    return "".join(word.capitalize() for word in key.name.split("_"))
