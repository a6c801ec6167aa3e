# The server on a CPU. Build: docker build -t ringfence .   Run: see compose.yaml and docs/serving.md.
FROM python:3.11-slim

WORKDIR /app
COPY pyproject.toml README.md LICENSE NOTICE constraints.txt ./
COPY src src
# On PyPI torch for Linux is the build with CUDA, gigabytes that a CPU has no use for. pip takes the CPU build where this
# names PyTorch's index of such: docker build --build-arg PIP_EXTRA_INDEX_URL=...
ARG PIP_EXTRA_INDEX_URL
# torch first and pinned, as the Makefile does it, so that nothing else chooses a build.
RUN pip install --no-cache-dir -c constraints.txt "$(grep '^torch==' constraints.txt)" \
 && pip install --no-cache-dir -c constraints.txt ".[serve]" \
 && useradd --system --create-home --home-dir /data ringfence

# Whoever it runs as, by compose.yaml: libraries want a home and a name.
ENV HOME=/tmp USER=ringfence
USER ringfence
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --start-period=60s \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=5)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["ringfence", "serve"]
CMD ["certification", "--host", "0.0.0.0", "--tokens", "tokens", "--jobs", "jobs"]
