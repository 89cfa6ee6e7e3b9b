"""The initial metadata records of a cluster: `bootstrap.checkpoint`, as kafka-storage format writes it to the
metadata directory, or the defaults.

The file is read and validated at every start, even if the log is not empty. It contains the level of
metadata.version, and may contain levels of other features, SCRAM credentials (format --add-scram), or any
other record. It is not updated when levels are raised, so since 4.0.1 an unsupported old level in it is fatal
only for a controller with an empty log.
Source: KIP-778, KIP-900, KAFKA-19192, org.apache.kafka.metadata.bootstrap.{BootstrapDirectory,
BootstrapMetadata}.
"""

from collections.abc import Sequence

from kraftsim.core.metadata.activation import Bootstrap, bootstrap_at
from kraftsim.core.metadata.metadata_level import FEATURE
from kraftsim.core.metadata.metadata_versions import FIRST_WITH_FEATURE_RECORDS
from kraftsim.node.config_keys import ConfigError
from kraftsim.releases.release import Release
from kraftsim.releases.traits import BOOTSTRAPS_ARE_READ_WHEN_NEEDED
from kraftsim.world.interface import Disk
from protocol.disk.file_names import BOOTSTRAP_CHECKPOINT
from protocol.disk.malformed_file import MalformedFile
from protocol.disk.metadata_snapshot import parse_metadata_snapshot
from protocol.metadata.m12_feature_level import FeatureLevelRecord

NOT_SUPPORTED = (0, 0)


def load_bootstrap(disk: Disk, release: Release, directory: str) -> Bootstrap:
    """Return the first records of an empty log; `directory` is the name of the disk in error messages. Raises ConfigError."""
    path = f"{directory}/{BOOTSTRAP_CHECKPOINT}"
    try:
        records = parse_metadata_snapshot(disk.read(BOOTSTRAP_CHECKPOINT)).records
    except FileNotFoundError:
        return bootstrap_at(release.metadata_version, release.supported_features)
    except MalformedFile as malformed:
        raise ConfigError(f"{path} cannot be read: {malformed}") from malformed
    levels = [record for record in records if isinstance(record, FeatureLevelRecord)]
    found = [record.feature_level for record in levels if record.name == FEATURE]
    if not found:
        raise ConfigError(f"{path}: no FeatureLevelRecord for {FEATURE}")
    why = _refusal(levels, release, found[-1])
    if why is not None and not release.has(BOOTSTRAPS_ARE_READ_WHEN_NEEDED):
        raise ConfigError(f"{path}: {why}")
    return Bootstrap(records=records, metadata_version=found[-1], refusal=None if why is None else f"{path}: {why}")


def _refusal(levels: Sequence[FeatureLevelRecord], release: Release, metadata_version: int) -> str | None:
    """Return why a cluster of a release cannot start at these levels, or None."""
    for record in levels:
        lowest, highest = release.supported_features.get(record.name, NOT_SUPPORTED)
        if not lowest <= record.feature_level <= highest:
            return f"{record.name} at level {record.feature_level} is not supported by {release.name} ({lowest} to {highest})"
    return None if metadata_version >= FIRST_WITH_FEATURE_RECORDS else f"{FEATURE} at level {metadata_version}, before 3.3-IV0, is not supported"
