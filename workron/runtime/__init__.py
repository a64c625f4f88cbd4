"""Parts of all long-running processes: logs, signals, outages."""
