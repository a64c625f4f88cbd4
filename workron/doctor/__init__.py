"""Finds what is wrong in Redis while all goes on, and rebuilds it from the hashes of jobs while nothing changes."""

from workron.doctor.doctor import Doctor, Report
from workron.doctor.faults import KINDS, Fault, Kind
from workron.doctor.glance import Glance

__all__ = ["KINDS", "Doctor", "Fault", "Glance", "Kind", "Report"]
