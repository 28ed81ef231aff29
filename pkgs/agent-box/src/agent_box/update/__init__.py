"""The box updater: what is pinned and what runs are the same, before it, after it, and if it dies.

The pins of a box are the lock file of the flake that it is built from. An update works on a copy
of that flake: it moves the copy's pins, makes sure that they only go forward, builds the system,
switches to it, and only then copies the lock file back.
"""
