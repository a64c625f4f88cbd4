"""The auditor: recounts all that is in Redis from the jobs up, while all goes on, says what is wrong, and mends it."""

from workron.doctor.doctor import Doctor, Report
from workron.doctor.faults import KINDS, Fault, Kind, Mend

__all__ = ["KINDS", "Doctor", "Fault", "Kind", "Mend", "Report"]
