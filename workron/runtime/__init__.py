"""What every long-running process of Workron has: logs, signals, outages."""
