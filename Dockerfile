# The web page as a container: docs/how-to/deploy.md says how to run it.
FROM python:3.13 AS build
COPY pyproject.toml hatch_build.py README.md LICENSE /src/
COPY predictors /src/predictors
COPY tracekit /src/tracekit
COPY sample_traces /src/sample_traces
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /src

FROM python:3.13-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu \
    "$(echo /wheels/*.whl)[web,postgresql,view,capture]" \
    && useradd --create-home --uid 1000 tracekit && install --directory --owner tracekit /data
USER 1000
ENV XDG_CACHE_HOME=/data/cache
VOLUME /data
EXPOSE 8321
HEALTHCHECK CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8321/login')"]
ENTRYPOINT ["tracekit", "serve", "--host", "0.0.0.0", "--data", "/data/web"]
