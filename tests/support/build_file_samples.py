"""Dockerfiles and definition files by the patterns that people publish; each with the files that it copies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PROJECT = {"pyproject.toml": '[project]\nname = "demo"\nversion = "1"\n', "train.py": "print(1)\n"}
SAMPLES: Mapping[str, Mapping[str, str]] = {
    "old-cuda": {
        "Dockerfile": """FROM nvidia/cuda:11.6.0-base-ubuntu20.04 as base
RUN apt-get update && apt-get install -y python3-pip && \\
    pip3 install torch==1.10.1+cu113 torchvision==0.11.2+cu113 \\
    -f https://download.pytorch.org/whl/cu113/torch_stable.html && \\
    pip3 install numpy
"""
    },
    "framework-image": {
        "Dockerfile": """FROM pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime
RUN apt-get update && apt-get install -y \\
    git curl ffmpeg libglib2.0-0 libsm6 \\
    && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY . .
CMD ["tail", "-f", "/dev/null"]
""",
        "requirements.txt": "mteb\ntqdm>=4\n",
    },
    "extra-index-in-file": {
        "Dockerfile": """FROM nvidia/cuda:11.8.0-devel-ubuntu22.04
RUN apt-get update && apt-get install -y python3 python3-pip && rm -rf /var/lib/apt/lists/*
WORKDIR /workspace
COPY requirements.txt /workspace/requirements.txt
RUN pip3 install --no-cache-dir --upgrade pip
RUN pip3 install --no-cache-dir -r requirements.txt
""",
        "requirements.txt": "--extra-index-url https://download.pytorch.org/whl/cu118\n"
        "torch==2.0.1+cu118\nnvidia-cudnn-cu11==8.5.0.96\nhydra-core==1.3.2  # configs\n",
    },
    "ngc-flash-attention": {
        "Dockerfile": """FROM nvcr.io/nvidia/pytorch:24.04-py3
ENV FLASH_ATTENTION_FORCE_BUILD=TRUE LANG=C.UTF-8
RUN pip install --no-cache-dir ninja deepspeed==0.14.0 einops 'transformers>=4.40'
RUN MAX_JOBS=4 pip install flash-attn==2.5.8 --no-build-isolation
RUN pip uninstall -y pynvml && pip install --upgrade nvidia-nccl-cu12==2.19.3
RUN git clone https://github.com/example/kernels.git \\
    && cd kernels/csrc && python setup.py install
ENTRYPOINT /usr/sbin/sshd -D && bash
"""
    },
    "arguments": {
        "Dockerfile": """ARG PYTHON_VERSION=3.11
ARG VARIANT
FROM --platform=linux/amd64 python:${PYTHON_VERSION}-slim
ARG PYTHON_VERSION
ARG SCIPY=1.14.1 MODE
ENV APP_HOME=/srv/app APP_DATA=${APP_HOME:-/srv}/data OLD=${VARIANT:-none}
ENV GREETING hello big world
WORKDIR $APP_HOME
RUN pip install "scipy==${SCIPY}" && echo "$PYTHON_VERSION" > version.txt
COPY --chown=1000:1000 train.py $APP_HOME/
LABEL version="1.0" description="two \\
words"
""",
        **PROJECT,
    },
    "multi-stage": {
        "Dockerfile": """FROM python:3.11-slim AS builder
RUN apt-get update && apt-get install -y build-essential
RUN python -m venv /opt/venv
ENV PATH="/opt/venv/bin:$PATH"
COPY requirements.txt .
RUN pip install --upgrade pip && pip install -r requirements.txt

FROM golang:1.22 AS tools
RUN go install example.org/tool@latest

FROM python:3.11-slim
COPY --from=builder /opt/venv /opt/venv
COPY --from=docker.io/library/busybox:1 /bin/busybox /usr/local/bin/busybox
ENV PATH="/opt/venv/bin:$PATH"
USER nobody
HEALTHCHECK CMD true
""",
        "requirements.txt": "flask\npandas==2.2.3\n",
    },
    "stage-on-stage": {
        "Dockerfile": """FROM ubuntu:22.04 AS base
RUN apt-get update && apt-get install -y python3.10 python3.10-venv libsndfile1
FROM base AS dev
RUN python3.10 -m pip install black
FROM base
RUN python3.10 -m pip install librosa
"""
    },
    "here-documents": {
        "Dockerfile": """# syntax=docker/dockerfile:1.4
FROM mambaorg/micromamba:1.5
COPY --link --chown=1000:1000 environment.yml /tmp/env.yml
RUN --mount=type=cache,target=/opt/conda/pkgs <<eot
    micromamba install -y -n base -f /tmp/env.yml
    micromamba clean --all --yes
eot
RUN python - <<'PY'
import sys
print(sys.version)
PY
COPY <<EOF /etc/demo.conf
verbose=1
EOF
""",
        "environment.yml": "name: base\nchannels: [pytorch, nvidia, conda-forge]\ndependencies:\n  - python=3.11\n"
        "  - pytorch=2.4.1\n  - pytorch-cuda=12.1\n  - xarray\n  - pip:\n      - einops==0.8.0\n",
    },
    "conda-words": {
        "Dockerfile": """FROM continuumio/miniconda3:24.1.2-0
SHELL ["/bin/bash", "-c"]
RUN conda config --set channel_priority strict && conda create -y -n demo python=3.10
RUN conda install -y -n demo -c conda-forge -c bioconda samtools=1.19 "numpy>=1.26,<2" && conda clean -afy
RUN conda run -n demo pip install polars && conda init bash
RUN echo "conda activate demo" >> ~/.bashrc
"""
    },
    "continued-lines": {
        "Dockerfile": """FROM debian:bookworm
RUN apt-get update \\

    # media
    && apt-get install -y --no-install-recommends \\
      ffmpeg=7:5.1.* \\
      # sound
      libsndfile1:amd64 \\
      python3-dev \\
    && rm -rf /var/lib/apt/lists/*
RUN ["pip3", "install", "soundfile"]
RUN if [ -n "$DEBUG" ]; then pip install ipdb; fi; \\
    touch /etc/demo && (cd /opt && mkdir -p demo) || exit 1
"""
    },
    "unquoted-bounds": {
        "Dockerfile": """FROM pytorch/pytorch:2.9.1-cuda12.6-cudnn9-devel
RUN apt-get update && apt-get install -y wget unzip && ln -sf /usr/bin/python3 /usr/bin/python
WORKDIR /app
COPY pyproject.toml train.py ./
RUN pip install --no-cache-dir \\
    accelerate>=1.11.0 \\
    datasets>=4.3.0 \\
    scikit-learn
RUN pip install -e ".[test]"
""",
        **PROJECT,
    },
    "rocm": {
        "Dockerfile": """FROM rocm/pytorch:rocm6.2_ubuntu22.04_py3.10_pytorch_release_2.3.0
ENV PYTORCH_ROCM_ARCH=gfx90a HSA_FORCE_FINE_GRAIN_PCIE=1
RUN pip install --pre torch torchvision --index-url https://download.pytorch.org/whl/nightly/rocm6.2
RUN pip install lightning wandb
"""
    },
    "own-image": {
        "Dockerfile": """FROM ghcr.io/example/solver:4.2
RUN apt-get update && apt-get install -y libhdf5-dev
RUN pip install --index-url https://pypi.example.org/simple/ h5py
ADD https://example.org/data.tar.gz /opt/data/
""",
    },
    "project-tools": {
        "Dockerfile": """FROM python:3.12-slim
COPY --from=ghcr.io/astral-sh/uv:0.5 /uv /bin/uv
WORKDIR /app
COPY . /app
RUN --mount=type=secret,id=token pip install private
RUN uv sync --frozen
RUN useradd -m me && chown -R me /app
RUN pip install .
""",
        **PROJECT,
    },
    "seed-dawn": {
        "pytorch2.8.def": """Bootstrap: docker
From: intel/intel-extension-for-pytorch:2.8.10-xpu

%post
    export PIP_ROOT_USER_ACTION=ignore;
    export PIP_NO_CACHE_DIR=1;
    python -m pip install --upgrade pip;
    python -m pip install matplotlib;
    python -m pip install pandas;
    python -m pip install seaborn;
"""
    },
    "seed-mn5": {
        "Dockerfile": """FROM nvcr.io/nvidia/pytorch:24.02-py3
COPY . /workspace
WORKDIR /workspace
RUN pip install -r requirements.txt
""",
        "requirements.txt": "torchmetrics\npyyaml\n",
    },
    "cuda-definition": {
        "demo.def": """Bootstrap: docker
From: nvidia/cuda:12.2.2-cudnn8-devel-ubuntu22.04

%environment
    export LC_ALL=C.UTF-8
    export PATH=/usr/games:$PATH

%post
    export DEBIAN_FRONTEND=noninteractive
    apt update
    apt install -y bash \\
        build-essential \\
        libsndfile1-dev \\
        python3.10 \\
        python3-pip
    rm -rf /var/lib/apt/lists
    python3 -m pip install --no-cache-dir --upgrade pip
    python3 -m pip install --no-cache-dir install pillow timm==0.6.7  # vision
    python3 -m pip install torch torchvision --index-url https://download.pytorch.org/whl/cu121
    unset DEBIAN_FRONTEND

%runscript
    exec python3 "$@"
"""
    },
    "conda-definition": {
        "Singularity": """From:continuumio/miniconda3:4.6.14
Bootstrap:docker

%labels
    MAINTAINER Max Example <max@example.org>
    VERSION 0.1

%environment
    PATH=/opt/conda/envs/demo/bin:$PATH
    export PATH

%files
    environment.yml /

%post
    apt-get update
    apt-get install -y procps
    apt-get clean -y
    /opt/conda/bin/conda env create -f /environment.yml
    /opt/conda/bin/conda clean -a
    echo ". /opt/conda/etc/profile.d/conda.sh" >> ~/.bashrc
    rm environment.yml
""",
        "environment.yml": "channels: [conda-forge, bioconda]\ndependencies: [python=3.11, samtools=1.19]\n",
    },
    "stages-and-arguments": {
        "demo.def": """Bootstrap: docker
From: golang:1.22
Stage: build

%post
    go install example.org/tool@{{ TOOL }}

Bootstrap: docker
From: ubuntu:{{ RELEASE }}
Stage: final

%arguments
    RELEASE=22.04
    TOOL=v1

%files from build
    /go/bin/tool /usr/local/bin/tool

%files
    train.py /opt/train.py

%post -c /bin/bash
    apt-get update && apt-get install -y python3 locales
    cat > /opt/hello.py <<'PY'
def hello():
    # a comment of Python
    return "bootstrap: docker"
PY
    export CC=gcc
    cd /opt
    for name in one two; do
        echo "$name" >> names.txt
    done

%appinstall other
    echo other

%test
    test -e /opt/hello.py

%help
    A demonstration.
""",
        **PROJECT,
    },
    "frontier-definition": {
        "vit.def": """Bootstrap: docker
From: rocm/dev-ubuntu-22.04:6.2-complete

%environment
    export ROCM_PATH=/opt/rocm
    export LD_LIBRARY_PATH="/opt/rocm/lib:$LD_LIBRARY_PATH"
    export MPICH_SMP_SINGLE_COPY_MODE=NONE
    case "$-" in *i*) source /opt/conda/etc/profile.d/conda.sh ;; esac

%setup
    mkdir -p ${APPTAINER_ROOTFS}/data

%post
    wget https://repo.anaconda.com/miniconda/Miniconda3-latest-Linux-x86_64.sh -O /tmp/conda.sh
    bash /tmp/conda.sh -b -p /conda
    . /conda/etc/profile.d/conda.sh
    conda create -y -p /conda/envs/vit python=3.11
    conda activate /conda/envs/vit
    pip install torch==2.5.1 torchvision==0.20.1 --index-url https://download.pytorch.org/whl/rocm6.2
    MPICC="cc -shared" pip install --no-cache-dir --no-binary=mpi4py mpi4py
    pip install git+https://github.com/huggingface/accelerate.git@v1.0.0
"""
    },
    "library-definition": {
        "demo.def": """Bootstrap: library
From: example/default/solver:1.2

%post
    zypper --non-interactive install gcc-c++
    dnf install -y gdal-devel
    apk add --no-cache py3-pip tini
"""
    },
    "intel": {
        "Dockerfile": """FROM intel/oneapi-basekit:2024.2.1-0-devel-ubuntu22.04
RUN apt-get update && apt-get install -y intel-level-zero-gpu level-zero python3-pip
RUN python3 -m pip install torch==2.1.0.post3 intel-extension-for-pytorch==2.1.40+xpu \\
    --extra-index-url https://pytorch-extension.intel.com/release-whl/stable/xpu/us/
RUN python3 -m pip install dpctl
"""
    },
    "secrets": {
        "Dockerfile": """FROM python:3.11
ENV HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyzABCDEF
ARG PASSWORD=correcthorse
RUN pip install --extra-index-url https://me:hunter2pass@pypi.example.org/simple demo
RUN curl -H "Authorization: Bearer ghp_abcdefghijklmnopqrstuvwxyz0123456789" https://example.org/x -o /opt/x
RUN pip install rich
"""
    },
}  # fmt: skip


def place_sample(folder: Path, name: str) -> Path:
    """Write the files of a sample; the path of the first, which is the one to read."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in SAMPLES[name].items():
        (folder / file).write_text(text, encoding="utf-8")
    return folder / next(iter(SAMPLES[name]))
