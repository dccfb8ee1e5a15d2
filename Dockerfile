# Two images from one file: "web" has no PyTorch, "worker" has it.
#   docker build --target web -t ttsweb-web .
#   docker build --target worker -t ttsweb-worker .

FROM python:3.13-slim AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    TTS_DATA_DIR=/data TTS_STORAGE_DIR=/data/media
WORKDIR /app
RUN useradd --uid 10001 --create-home ttsweb && mkdir -p /data/media /data/models /data/workers && chown -R ttsweb /data && ln -s /data /app/data
COPY pyproject.toml constraints.txt ./
COPY ttsweb/install/install_list.py ttsweb/install/torch_install.py ttsweb/install/
COPY synth/engine/codec/torchaudio_import.py synth/engine/codec/
RUN pip install -c constraints.txt pip && \
    python ttsweb/install/install_list.py pyproject.toml > /tmp/list && \
    pip install -c constraints.txt -r /tmp/list && rm /tmp/list

FROM base AS web
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
RUN python ttsweb/install/install_list.py pyproject.toml engine > /tmp/list && \
    pip install -c constraints.txt -r /tmp/list && rm /tmp/list && \
    TTS_TORCH=${TTS_TORCH} python ttsweb/install/torch_install.py constraints.txt
COPY . .
# What computes frames on a processor is compiled here, so that no first start waits for it; and a
# build ends here where Triton could compile nothing.
RUN python -m synth.engine.native.build && \
    python -c "from synth.engine.kernels import why_nothing_compiles as w; assert not w(), w()"
USER ttsweb
CMD ["python", "manage.py", "worker", "--role", "gpu"]
