# Shaped like nvcr.io/nvidia/pytorch since 25.03, on a CPU: torch in the system's Python, held by constraints that hold
# for pip alone, an entrypoint that speaks first, a working folder of its own. Torch's own tests and its headers, a
# quarter of it, are left out.
ARG BASE
FROM ${BASE}
ARG TORCH
# Settings of the machine's pip, where it has any.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
RUN --mount=type=bind,source=inputs,target=/inputs \
    if [ -f /inputs/ca.pem ]; then export PIP_CERT=/inputs/ca.pem; fi && \
    python3 -m pip install --break-system-packages --no-cache-dir --root-user-action=ignore \
        --find-links /inputs/wheels "torch==${TORCH}" six==1.16.0 && \
    cd /usr/local/lib/python3*/dist-packages/torch && \
    rm -r include test && find bin -type f ! -name torch_shm_manager -delete
RUN mkdir -p /etc/pip /workspace /opt/nvidia && \
    printf 'six==1.16.0\ntorch==%s\n' "${TORCH}" >/etc/pip/constraint.txt && \
    printf '#!/bin/sh\necho "== stand-in for PyTorch of NGC =="\nexec "$@"\n' >/opt/nvidia/entrypoint.sh && \
    chmod 755 /opt/nvidia/entrypoint.sh
ENV PIP_CONSTRAINT=/etc/pip/constraint.txt NVIDIA_PYTORCH_VERSION=stand-in
WORKDIR /workspace
ENTRYPOINT ["/opt/nvidia/entrypoint.sh"]
