"""The group coordinator of a broker: its partitions of `__consumer_offsets`.

Source: kafka.coordinator.group.GroupCoordinator.
"""
