"""The APIs that a broker serves, one module for each API key; `dispatch` finds them by listing this
package.
"""
