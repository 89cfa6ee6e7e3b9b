"""A replica of the metadata log in a node: its files, its connections to the others, its timers.   Source: KIP-595, KIP-630, KIP-853."""
