"""Tells sessions that the cloud is about to take the machine away, or would like to."""
