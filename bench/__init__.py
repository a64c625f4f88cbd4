"""Measurements: Workron beside other queues and beside the limits of the machine. `python -m bench`; not shipped."""
