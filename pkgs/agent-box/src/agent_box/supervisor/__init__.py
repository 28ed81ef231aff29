"""The supervisor: makes the sessions that exist equal to the registry."""
