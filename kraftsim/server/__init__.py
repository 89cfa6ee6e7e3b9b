"""What every node does for its clients, whatever they ask: who they are, what they may do, how fast."""
