"""Boots an agent-box in a virtual machine or container and proves what it promises."""

__version__ = "0.1.0"
