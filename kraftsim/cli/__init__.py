"""The command `kraftsim`: one file per verb, imported only when that verb is used."""
