"""Workron: a distributed job scheduler over Redis."""

__version__ = "0.1.0"
