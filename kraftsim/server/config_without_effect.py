"""Kafka settings that are accepted, so that real property files can be used, but have no effect.

They are the settings of all releases that no field of `NodeConfig` and no listener declares;
reference/settings.md lists them.
Source: the generated rows of kraftsim/metadata/config_facts.
"""

from kraftsim.metadata.rules_config_releases import all_broker_settings

KEYS_WITHOUT_EFFECT = all_broker_settings()
"""Callers remove the declared ones."""
