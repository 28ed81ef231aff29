"""Sites: what a user of the box publishes under a host name of its own.

The user declares sites as data in `~/.config/agent-box/sites.json`. A helper of root reads that,
checks each entry by itself and writes the edge's configuration from fixed templates.
"""
