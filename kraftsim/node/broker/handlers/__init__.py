"""What a broker answers, one file for each API key; `dispatch` finds them by listing this folder."""
