# `make check` runs what CI runs. Everything else is a shortcut.
.PHONY: help check test soak lint format types generate pins api-key image

help:
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 20

check: ## all that CI checks: format, lint, types, tests
	.ci/run

test: ## the tests, on the servers that are installed
	uv run pytest

soak: ## long explorations in full, and every test on every server
	uv run pytest --soak

lint: ## find mistakes, and unformatted files
	uv run ruff check
	uv run ruff format --check
	uv run lint-imports --no-cache

format: ## repair what can be repaired
	uv run ruff check --fix
	uv run ruff format

types: ## mypy --strict
	uv run mypy

generate: ## write the files that follow from others, such as the tables of docs/keys.md
	uv run python -m tools.generate

pins: ## resolve all dependencies again and pin what came out
	uv run --no-sync python .ci/pins.py

ENGINE ?= docker
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
SOURCE = $(or $(shell git config --get remote.origin.url | sed 's|//[^/@]*@|//|'),unknown)
REVISION = $(or $(shell git rev-parse HEAD 2>/dev/null),unknown)

# Podman's own format has no health check. BuildKit, for the mounts, is the default of Docker since version 23.
image: ## build the container image; ENGINE=podman builds it with Podman
	DOCKER_BUILDKIT=1 $(ENGINE) build $(if $(findstring podman,$(ENGINE)),--format docker )--tag localhost/workron:$(VERSION) \
		--build-arg SOURCE=$(SOURCE) --build-arg REVISION=$(REVISION) .

api-key: secrets/api_key ## make the key that compose.yaml gives to the API

# The folder keeps others out; the file itself must be readable by the user inside the container.
secrets/api_key:
	@mkdir -p -m 700 secrets
	@python3 -c 'import secrets; print(secrets.token_hex(32))' >$@.new
	@chmod 444 $@.new
	@mv $@.new $@
	@echo "made $@"
