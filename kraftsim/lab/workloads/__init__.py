"""What scenarios let clients do, and what they check of it."""
