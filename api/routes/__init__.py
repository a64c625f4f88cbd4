"""The operations of the HTTP API, a file for each kind of thing."""
