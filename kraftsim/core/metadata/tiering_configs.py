"""Validation of topic configurations for tiered storage. The error messages are Kafka's.

Source: org.apache.kafka.storage.internals.log.LogConfig (validateTopicLogConfigValues), KIP-405,
KIP-950.
"""

from collections.abc import Mapping
from typing import Final

from kraftsim.core.metadata.config_definitions import parse_value
from kraftsim.core.metadata.topic_configs import NO_TIERED_STORAGE
from protocol.config_resources import ConfigType

SYSTEM_ENABLE: Final = "remote.log.storage.system.enable"
"""The broker setting that enables tiered storage."""
AS_THE_WHOLE: Final = -2
"""A local retention equal to that of the whole log."""
WITHOUT_LIMIT: Final = -1
NOT_COMPACTED: Final = "Remote log storage is unsupported for the compacted topics"
NOT_TURNED_OFF: Final = (
    "It is invalid to disable remote storage without deleting remote data. If you want to keep "
    "the remote data and turn to read only, please set "
    "`remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable remote "
    "storage and delete all remote data, please set "
    "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
)
NOT_IDENTICAL: Final = (
    "When `remote.log.copy.disable` is set to true, the `local.retention.{unit}` and "
    "`retention.{unit}` must be set to the identical value because there will be no more logs "
    "copied to the remote storage."
)


def complaint_about_tiering(
    effective: Mapping[str, str], broker_settings: Mapping[str, str], was_tiered: bool = False
) -> str | None:
    """Return the error of a topic's effective configurations, or None.

    `was_tiered`: whether it is tiered so far.
    """
    if not is_true(effective, "remote.storage.enable"):
        return (
            NOT_TURNED_OFF
            if was_tiered and not is_true(effective, "remote.log.delete.on.disable")
            else None
        )
    if not is_true(broker_settings, SYSTEM_ENABLE):
        return NO_TIERED_STORAGE
    if "compact" in effective["cleanup.policy"].lower():
        return NOT_COMPACTED
    complaint = _complaint_about_retention(effective, "bytes") or _complaint_about_retention(
        effective, "ms"
    )
    if complaint is not None or not is_true(effective, "remote.log.copy.disable"):
        return complaint
    for unit in ("bytes", "ms"):
        local = int(effective[f"local.retention.{unit}"])
        if local not in (AS_THE_WHOLE, int(effective[f"retention.{unit}"])):
            return NOT_IDENTICAL.format(unit=unit)
    return None


def is_true(configs: Mapping[str, str], name: str) -> bool:
    """Return whether a configuration is set and true."""
    return name in configs and bool(parse_value(ConfigType.BOOLEAN, configs[name]))


def _complaint_about_retention(effective: Mapping[str, str], unit: str) -> str | None:
    whole, local = int(effective[f"retention.{unit}"]), int(effective[f"local.retention.{unit}"])
    has_limit = whole > WITHOUT_LIMIT if unit == "bytes" else whole != WITHOUT_LIMIT
    if not has_limit or local == AS_THE_WHOLE:
        return None
    if local == WITHOUT_LIMIT:
        why = f"Value must not be -1 as retention.{unit} value is set as {whole}."
    elif local > whole:
        why = f"Value must not be more than retention.{unit} property value: {whole}"
    else:
        return None
    return f"Invalid value {local} for configuration local.retention.{unit}: {why}"
