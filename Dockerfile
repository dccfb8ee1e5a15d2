# Two images from one file: "web" has no PyTorch, "worker" has it.
#   docker build --target web -t ttsweb-web .
#   docker build --target worker -t ttsweb-worker .

FROM python:3.13-slim AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    TTS_DATA_DIR=/data TTS_STORAGE_DIR=/data/media
WORKDIR /app
RUN useradd --uid 10001 --create-home ttsweb && mkdir -p /data/media && chown -R ttsweb /data
COPY pyproject.toml constraints.txt ./
COPY ttsweb/install_list.py ttsweb/torch_install.py ttsweb/
RUN pip install -c constraints.txt pip && \
    python ttsweb/install_list.py pyproject.toml > /tmp/list && \
    pip install -c constraints.txt -r /tmp/list && rm /tmp/list

FROM base AS web
COPY . .
USER ttsweb
EXPOSE 8000
CMD ["python", "manage.py", "serve", "--host", "0.0.0.0"]

FROM base AS worker
# "cpu" makes an image of about 1.3 GB for machines without an NVIDIA device.
ARG TTS_TORCH=cuda
RUN python ttsweb/install_list.py pyproject.toml engine > /tmp/list && \
    pip install -c constraints.txt -r /tmp/list && rm /tmp/list && \
    TTS_TORCH=${TTS_TORCH} python ttsweb/torch_install.py constraints.txt
COPY . .
# What computes frames on a processor is compiled here, so that the image needs no compiler.
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null && \
    python -m synth.engine.native.build && \
    apt-get purge -y -qq --auto-remove gcc libc6-dev >/dev/null && rm -rf /var/lib/apt/lists/*
USER ttsweb
CMD ["python", "manage.py", "worker", "--role", "gpu"]
