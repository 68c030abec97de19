# teetotal as an image: the command, Dagster's web server and its daemon. compose.yaml runs a whole deployment of it.
#
#   docker build -t teetotal .
#   mkdir -p data
#   docker run --rm --read-only --tmpfs /tmp --user "$(id -u):$(id -g)" -v "$PWD/data:/data" teetotal run
#
# It runs as nobody in particular, on a read-only root: what is written lies under /data and /tmp. A volume of Docker's
# gets the owner of /data here, 10001; a directory of yours keeps its own, so the container runs as you.

FROM python:3.11-slim-bookworm AS build
WORKDIR /source
COPY requirements/bootstrap.lock requirements/server.lock requirements/
RUN python -m pip install --no-cache-dir --require-hashes -r requirements/bootstrap.lock \
    && uv venv /opt/teetotal \
    && uv pip install --python /opt/teetotal --no-cache --compile-bytecode --require-hashes -r requirements/server.lock
COPY . .
# The build needs nothing that the lock did not bring. Compiled here, since nothing can be on a read-only root: a command
# would otherwise compile 4,000 modules each time that it starts.
RUN uv pip install --python /opt/teetotal --no-cache --compile-bytecode --no-deps --no-build-isolation .

# Without an entrypoint, for Dagster's Helm chart (docs/dagster-values.yaml), which writes whole commands as arguments:
# docker build --target dagster -t teetotal-dagster .
FROM python:3.11-slim-bookworm AS dagster
COPY --from=build /opt/teetotal /opt/teetotal
RUN useradd --uid 10001 --no-create-home --home-dir /data teetotal \
    && install --directory --owner 10001 --group 10001 --mode 0700 /data
USER 10001:10001
WORKDIR /data
VOLUME /data
ENV PATH=/opt/teetotal/bin:$PATH \
    HOME=/data \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TEETOTAL_LAKE=/data/lake \
    TEETOTAL_LANDING=/data/landing
CMD ["dagster", "api", "grpc", "--host", "0.0.0.0", "--port", "3030", "--module-name", "teetotal.pipelines.definitions"]

FROM dagster
# Of the web server; compose.yaml has one for the daemon.
HEALTHCHECK --interval=30s --timeout=10s --start-period=120s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:3000/server_info', timeout=5)"]
ENTRYPOINT ["teetotal"]
CMD ["ui", "--port", "3000"]
