# leakscope on the processor: one unprivileged user, nothing fetched at run time.
#
#   docker build -t leakscope .
#   docker run --rm --network none --read-only --tmpfs /tmp -v "$PWD:/work" --user "$(id -u)" leakscope audit --config audit.yaml
FROM python:3.11-slim

# Wheels of torch without CUDA: the ones on PyPI bring gigabytes that a processor cannot use.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    OMP_NUM_THREADS=1

WORKDIR /opt/leakscope
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN python -m pip install --no-cache-dir --extra-index-url "$TORCH_INDEX" -c constraints.txt .
RUN useradd --create-home --uid 10001 leakscope && install -d -o leakscope -g leakscope /work

USER 10001
WORKDIR /work
ENTRYPOINT ["leakscope"]
CMD ["--help"]
