"""`workron up`: the processes of one machine with an embedded server."""
