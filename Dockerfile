# One image for every process of Workron; the command says which: api, worker, reaper (or `up`, all of it).

FROM python:3.13-slim-bookworm AS build
RUN pip install --no-cache-dir --disable-pip-version-check uv==0.13.9
ENV UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
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
RUN --mount=type=cache,target=/root/.cache/uv \
    uv sync --no-dev --no-editable

FROM python:3.13-slim-bookworm
LABEL org.opencontainers.image.title="workron" \
      org.opencontainers.image.description="A distributed job scheduler over Redis" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="0.1.0"
# tini is pid 1: it passes signals on and reaps what commands leave behind.
# Its version is left open: within one Debian release it moves only by security updates, which are wanted.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 workron \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/workron --shell /usr/sbin/nologin workron \
    && install -d -o workron -g workron -m 0700 /var/lib/workron
COPY --from=build /opt/workron /opt/workron
# drain_timeout and kill_grace together are less than the 10 s after which a plain `docker stop` kills.
ENV PATH=/opt/workron/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    WORKRON_DATA_DIR=/var/lib/workron \
    WORKRON_DRAIN_TIMEOUT=3s
USER 10001:10001
WORKDIR /var/lib/workron
EXPOSE 8080
# For the default command; compose.yaml has one for each process.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-m", "workron.healthcheck", "api"]
ENTRYPOINT ["tini", "--", "workron"]
# Only on the container's own address can the API be reached from outside; publish it on 127.0.0.1.
CMD ["api", "--host", "0.0.0.0"]
