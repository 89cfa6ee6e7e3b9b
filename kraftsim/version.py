"""The version of kraftsim, in a module of its own: what a node imports does not import the public
API.
"""

__version__ = "0.2.0"
