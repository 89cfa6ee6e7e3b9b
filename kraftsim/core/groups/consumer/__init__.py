"""Groups of the protocol of KIP-848: the coordinator works out who reads what, and moves each member there by heartbeats."""
