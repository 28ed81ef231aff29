"""Webhooks: accept deliveries, decide who wants them, and tell the agents."""
