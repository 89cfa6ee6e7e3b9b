"""The pages of the documentation, and the generators of some of them."""
