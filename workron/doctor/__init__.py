"""The auditor: recounts all that is in Redis from the jobs up, while all goes on, says what is wrong, and mends it."""

from workron.doctor.doctor import Doctor, Report
from workron.doctor.faults import KINDS, Fault, Kind, Mend
from workron.doctor.glance import Glance

__all__ = ["KINDS", "Doctor", "Fault", "Glance", "Kind", "Mend", "Report"]
