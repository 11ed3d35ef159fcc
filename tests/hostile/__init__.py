"""Agents that cheat: each is a program of its own, started by path with WORKSPACE STATE RUNNER."""
