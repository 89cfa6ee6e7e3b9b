"""Authentication and access at a node's connections: what the rules of `kraftsim.core.security` are asked, and what becomes of the answer."""
