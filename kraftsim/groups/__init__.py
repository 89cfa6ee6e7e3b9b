"""Consumer groups as the group coordinator keeps them: members, generations, committed offsets.

Source: kafka.coordinator.group.
"""
