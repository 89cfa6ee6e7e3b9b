"""Authentication and authorization of a node's connections: applies the rules of
`kraftsim.server`.
"""
