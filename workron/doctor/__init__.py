"""Finds damage in Redis on a running system, and repairs it from the hashes of jobs, under a lock."""

from workron.doctor.doctor import Doctor, Report
from workron.doctor.faults import KINDS, Fault, Kind
from workron.doctor.spot_check import SpotCheck

__all__ = ["KINDS", "Doctor", "Fault", "Kind", "Report", "SpotCheck"]
