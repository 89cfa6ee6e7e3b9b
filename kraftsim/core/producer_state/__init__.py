"""What a partition knows of each idempotent producer, and what that makes of the next batch.   Source: KIP-98, KIP-360."""
