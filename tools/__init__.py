"""What developers run. `make generate` writes each file that follows from another one."""
