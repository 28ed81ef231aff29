"""Guided sign-in: a vendor's own CLI is driven in a pane, and nothing here ever stores a token.

`flows` says what each CLI is called with and what it may show; `screen` reads the pane; `vault`
keeps a working credential through an attempt that comes to nothing; `pane` is the program that
runs in the sandbox. The supervisor (`supervisor/signin.py`) puts them together.
"""
