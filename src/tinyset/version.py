"""The library's version, written into every artifact."""

__version__ = "0.1.0"
