"""The rules of a transaction coordinator: states and epochs, transactional ids, and transaction
markers.
"""
