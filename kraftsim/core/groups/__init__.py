"""Consumer groups as their coordinator knows them: members, generations, committed offsets.   Source: kafka.coordinator.group."""
