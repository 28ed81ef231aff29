"""Codex remote control: an app-server per user, in a unit of its own, and panes that refer to it.

`daemon` is the unit's program, `pane` what a session runs, `machine` its states, `place` the files
through which they know of each other.
"""
