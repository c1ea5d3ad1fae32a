# One image for shards, workers and psctl: docker build -t grpc-ps .
FROM python:3.12-slim AS build
WORKDIR /source
# What changes seldom first: the dependencies, TensorFlow among them, are then taken from the build cache.
COPY pyproject.toml ./
RUN python -m venv /opt/grpc-ps \
    && /opt/grpc-ps/bin/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" > needs.txt \
    && /opt/grpc-ps/bin/pip install --no-cache-dir --requirement needs.txt
COPY README.md LICENSE ./
COPY client client
COPY models models
COPY protos protos
COPY psserver psserver
COPY worker worker
RUN /opt/grpc-ps/bin/pip install --no-cache-dir --no-deps . \
    && /opt/grpc-ps/bin/pip uninstall --yes pip

FROM python:3.12-slim
COPY --from=build /opt/grpc-ps /opt/grpc-ps
# Folders for volumes, which take their owner from here.
RUN useradd --uid 1000 --create-home grpc-ps \
    && install --directory --owner=grpc-ps --group=grpc-ps /certs /checkpoints /data
ENV PATH=/opt/grpc-ps/bin:$PATH \
    PYTHONUNBUFFERED=1
USER 1000
WORKDIR /home/grpc-ps
EXPOSE 2222
CMD ["psctl", "--help"]
