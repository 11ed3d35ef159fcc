"""Trusted ground: everything that runs before any agent process exists."""

__version__ = "0.1.0"
