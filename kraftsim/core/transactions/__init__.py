"""What a transaction coordinator decides: states and epochs, the ledger of transactional ids, and the queue of markers."""
