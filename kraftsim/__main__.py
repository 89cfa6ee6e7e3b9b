"""`python -m kraftsim` is the command `kraftsim`."""

from kraftsim.cli.main import main

main()
