"""The runtime of an agent-box: sessions, their supervisor, and the tools around them."""

__version__ = "0.1.0"
