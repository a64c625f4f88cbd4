-- job_fields: the plain job fields that a claim returns, written by `make generate` from workron/models/job_fields.py.

local JOB_FIELDS = { CLAIMED = { 'command', 'argv', 'timeout_ms', 'env', 'cwd' } }
