"""Measurements: Workron compared with other queues and the limits of the machine. `python -m bench`; not shipped."""
