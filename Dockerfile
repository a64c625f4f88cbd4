# One image for every process of Workron; the command says which: api, worker, reaper (or `up`, all of it).
#
# `make image` builds it, with Docker or Podman. `podman build` on its own needs `--format docker`: without it, the image
# has no HEALTHCHECK.

FROM docker.io/library/python:3.13-slim-bookworm AS build
RUN pip install --no-cache-dir --disable-pip-version-check uv==0.13.9
ENV UV_LINK_MODE=copy \
    UV_PROJECT_ENVIRONMENT=/opt/workron \
    UV_PYTHON_DOWNLOADS=never
WORKDIR /src
# Dependencies first: this layer is made anew only when pyproject.toml, with its exact versions, changes.
COPY pyproject.toml ./
RUN --mount=type=cache,target=/root/.cache/uv \
    uv sync --no-dev --no-install-project
COPY README.md LICENSE ./
COPY api/ api/
COPY lua/ lua/
COPY reaper/ reaper/
COPY workers/ workers/
COPY workron/ workron/
# The package is made again each time: its version, by which uv keeps it, does not change with its code.
RUN --mount=type=cache,target=/root/.cache/uv \
    uv sync --no-dev --no-editable --reinstall-package workron
# uv leaves a lock file that every user may write.
RUN rm -f /opt/workron/.lock

FROM docker.io/library/python:3.13-slim-bookworm
# tini is pid 1: it passes signals on and reaps what commands leave behind.
# Its version is left open: within one Debian release it moves only by security updates, which are wanted.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 workron \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/workron --shell /usr/sbin/nologin workron \
    && install -d -m 1777 /var/lib/workron
COPY --from=build /opt/workron /opt/workron
# The base image has no compiled standard library, and a read-only container can't write one: each start would compile
# all that it imports. The hash mode does not depend on file times, which some builders change.
RUN /opt/workron/bin/python -m compileall -q --invalidation-mode unchecked-hash -x '/tests?/' \
    "$(/opt/workron/bin/python -c 'import os; print(os.path.dirname(os.__file__))')" /opt/workron/lib
# drain_timeout and kill_grace together are less than the 10 s after which a plain `docker stop` kills.
ENV PATH=/opt/workron/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    WORKRON_DATA_DIR=/var/lib/workron \
    WORKRON_DRAIN_TIMEOUT=3s
USER 10001:10001
# Any user may work here, also one given with `--user`. Commands run here unless their job names a directory.
WORKDIR /tmp
EXPOSE 8080
# Finds out which process runs here, and asks it.
HEALTHCHECK --interval=20s --timeout=10s --start-period=20s --retries=3 \
    CMD ["python", "-I", "-m", "workron.healthcheck"]
ENTRYPOINT ["tini", "--", "workron"]
# Only on the container's own address can the API be reached from outside; publish it on 127.0.0.1.
CMD ["api", "--host", "0.0.0.0"]
# Last, as they change with each commit.
ARG SOURCE=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="workron" \
      org.opencontainers.image.description="A distributed job scheduler over Redis" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.revision="${REVISION}"
