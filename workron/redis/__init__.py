"""The only code that talks to Redis: connections, names of keys, scripts."""
