"""The Lua transitions, one file each. This package holds only data; `workron.redis.scripts` loads it."""
