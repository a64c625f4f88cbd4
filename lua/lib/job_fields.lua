-- job_fields: the plain fields of a job that its worker gets, written by `make generate` from workron/models/job_fields.py.

local JOB_FIELDS = { CLAIMED = { 'command', 'argv', 'timeout_ms', 'env', 'cwd' } }
