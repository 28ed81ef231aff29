"""The pin updater: moves what the repository pins to the newest upstream, or leaves it alone.

A pin is a revision of a Git repository together with the hash of its files. Both change
together or not at all, and only after the new pair was fetched and found right.
"""
