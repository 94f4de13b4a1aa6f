# Build, with BuildKit: DOCKER_BUILDKIT=1 docker build -t refundd:0.1.0 .
# `make compose-test` builds it. It uses no syntax from outside the engine, so the build fetches no other builder.

FROM rust:1.95-bookworm@sha256:6258907abe69656e41cd992e0b705cdcfabcbbe3db374f92ed2d47121282d4a1 AS build
WORKDIR /src
COPY . .
# The nodes need no feature. `playground` adds the command `pretend-bank`.
ARG FEATURES=""
# The caches belong to the builder and are not part of the image, so the program is copied out of them. Every commit has the same ones.
# Cargo compares the times of files: without `touch`, sources that are older than the last build would give the program of that build.
# `sharing=locked`: two builds at once, such as the two images of docker-compose.yml, would copy each other's program.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target,sharing=locked \
    find . -path ./target -prune -o -type f -exec touch {} + \
    && cargo install --quiet --locked --version 0.7.7 cargo-auditable \
    && cargo auditable build --locked --profile dist --no-default-features --features "$FEATURES" \
    && cp target/dist/refundd /usr/local/bin/refundd

FROM debian:bookworm-slim@sha256:3783cc01769c7b2b1b83a5c5ad96c815348e28ed7da68e2e3687004faa906251
# CA certificates to trust banks by, time zones for what people read. Nothing else is needed.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates tzdata \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin refundd
COPY --from=build /usr/local/bin/refundd /usr/bin/refundd
COPY config/alarms.yml config/node-role.sql config/producer-role.sql config/reader-role.sql config/redis.acl /usr/share/refundd/
ENV REFUNDD_CONFIG=/etc/refundd/refundd.toml MALLOC_ARENA_MAX=2
USER 10001:10001
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/refundd"]
CMD ["run"]
