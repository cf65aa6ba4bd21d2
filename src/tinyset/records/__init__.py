"""Numbers that can be made again: the record of a run, and the run made again from its record."""

from tinyset.records.folder import RunRecord, keep, read, renew
from tinyset.records.reproduction import Reproduction, reproduce

__all__ = ["Reproduction", "RunRecord", "keep", "read", "renew", "reproduce"]
