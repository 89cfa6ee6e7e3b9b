"""Kafka's settings that are accepted so that a real property file can be used, but change nothing here.

Every setting of every release that no field of `NodeConfig` and no listener declares; reference/settings.md lists them.
Source: the generated rows of kraftsim/core/metadata/config_facts.
"""

from kraftsim.core.metadata.config_releases import all_broker_settings

KEYS_WITHOUT_EFFECT = all_broker_settings()
"""Those that are declared are taken out where they are asked for."""
