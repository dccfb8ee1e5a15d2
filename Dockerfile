# Two images from one file: "web" has no PyTorch, "worker" has it.
#   docker build --target web -t ttsweb-web .
#   docker build --target worker -t ttsweb-worker .

# A tag alone may mean other bytes tomorrow. docs/production.md says how to look up what it means
# today; --build-arg BASE_IMAGE=python:3.13-slim@sha256:... then builds on these bytes.
ARG BASE_IMAGE=python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
FROM ${BASE_IMAGE} AS base
# All that is written at run time lies below /data, so that the root may be read-only.
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    TTS_DATA_DIR=/data TTS_STORAGE=/data/media TMPDIR=/data/spool \
    XDG_CACHE_HOME=/data/cache HF_HOME=/data/cache/huggingface TRITON_CACHE_DIR=/data/cache/triton
WORKDIR /app
RUN useradd --uid 10001 --create-home ttsweb && mkdir -p /data /data/media /data/models /backups /data/spool /data/cache && chown -R ttsweb /data /backups && ln -s /data /app/data
COPY pyproject.toml constraints.txt constraints.hashes.txt ./
COPY ttsweb/install/steps.py ttsweb/install/torch_install.py ttsweb/install/
COPY synth/engine/codec/torchaudio_import.py synth/engine/codec/
# Extras for both images, such as "wyoming asr".
ARG EXTRAS=
# The pinned pip comes first: older ones take no digests from constraints.
RUN sed -n '/^pip==/,/[^\\]$/p' constraints.hashes.txt > /tmp/pip && pip install -r /tmp/pip && rm /tmp/pip && \
    python ttsweb/install/steps.py list pyproject.toml ${EXTRAS} > /tmp/list && \
    pip install -c constraints.txt -c constraints.hashes.txt -r /tmp/list && rm /tmp/list

FROM base AS web
# pg_dump and pg_restore, for ./tts backup and restore.
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql-client >/dev/null && \
    rm -rf /var/lib/apt/lists/*
COPY . .
USER ttsweb
EXPOSE 8000
CMD ["python", "manage.py", "serve", "--host", "0.0.0.0"]

FROM base AS worker
# "cpu" makes an image of about 1.3 GB for machines without an NVIDIA device.
ARG TTS_TORCH=cuda
# They stay: Triton compiles its launchers when a worker starts, with gcc, the C library's headers
# and Python.h, which this base image has.
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null && \
    rm -rf /var/lib/apt/lists/*
RUN python ttsweb/install/steps.py list pyproject.toml engine > /tmp/list && \
    pip install -c constraints.txt -c constraints.hashes.txt -r /tmp/list && rm /tmp/list && \
    TTS_TORCH=${TTS_TORCH} python ttsweb/install/torch_install.py constraints.txt
COPY . .
# What computes frames on a processor is compiled here, so that no first start waits for it; and a
# build ends here where Triton could compile nothing.
RUN python -m synth.engine.native.build && \
    python -c "from synth.engine.kernels import why_nothing_compiles as w; assert not w(), w()"
USER ttsweb
CMD ["python", "manage.py", "worker", "--role", "gpu"]
