"""What a cluster begins with: `bootstrap.checkpoint`, as kafka-storage format leaves it in the metadata directory, or what goes without saying.

The file is read at every start, whether the log is empty or not, and must be sound; it names the level of metadata.version, and may hold levels of
other features, SCRAM credentials (format --add-scram), or any other record.
Source: KIP-778, KIP-900, org.apache.kafka.metadata.bootstrap.{BootstrapDirectory, BootstrapMetadata}.
"""

from kraftsim.core.metadata.activation import Bootstrap, bootstrap_at
from kraftsim.core.metadata.metadata_level import FEATURE
from kraftsim.core.metadata.metadata_versions import FIRST_WITH_FEATURE_RECORDS
from kraftsim.node.config_keys import ConfigError
from kraftsim.releases.release import Release
from kraftsim.world.interface import Disk
from protocol.disk.file_names import BOOTSTRAP_CHECKPOINT
from protocol.disk.malformed_file import MalformedFile
from protocol.disk.metadata_snapshot import parse_metadata_snapshot
from protocol.metadata.m12_feature_level import FeatureLevelRecord

NOT_SUPPORTED = (0, 0)


def load_bootstrap(disk: Disk, release: Release, directory: str) -> Bootstrap:
    """Return what an empty log is given; `directory` is how the disk is called where something is wrong. Raises ConfigError."""
    path = f"{directory}/{BOOTSTRAP_CHECKPOINT}"
    try:
        records = parse_metadata_snapshot(disk.read(BOOTSTRAP_CHECKPOINT)).records
    except FileNotFoundError:
        return bootstrap_at(release.metadata_version, release.supported_features)
    except MalformedFile as malformed:
        raise ConfigError(f"{path} cannot be read: {malformed}") from malformed
    levels = [record for record in records if isinstance(record, FeatureLevelRecord)]
    for record in levels:
        lowest, highest = release.supported_features.get(record.name, NOT_SUPPORTED)
        if not lowest <= record.feature_level <= highest:
            raise ConfigError(f"{path}: {record.name} at level {record.feature_level} is not supported by {release.name} ({lowest} to {highest})")
    found = [record.feature_level for record in levels if record.name == FEATURE]
    if not found:
        raise ConfigError(f"{path}: no FeatureLevelRecord for {FEATURE}")
    if found[-1] < FIRST_WITH_FEATURE_RECORDS:
        raise ConfigError(f"{path}: {FEATURE} at level {found[-1]}, before 3.3-IV0, is not supported")
    return Bootstrap(records=records, metadata_version=found[-1])
