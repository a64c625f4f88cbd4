"""Finds damage in Redis on a running system, and repairs it from the hashes of jobs during a pause."""

from workron.doctor.doctor import Doctor, Report
from workron.doctor.faults import KINDS, Fault, Kind
from workron.doctor.glance import Glance

__all__ = ["KINDS", "Doctor", "Fault", "Glance", "Kind", "Report"]
