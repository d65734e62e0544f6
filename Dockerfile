# The broker's image: one static binary, no shell, not root. Both bases are build arguments, so that a mirror or a
# distroless base can stand in:  docker build --build-arg GO_IMAGE=... --build-arg BASE_IMAGE=... .
ARG GO_IMAGE=golang:1.26
ARG BASE_IMAGE=scratch

FROM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.buildVersion=${VERSION}" -o /out/root/usr/bin/pgbroker ./cmd/pgbroker
# What a scratch image lacks: an owner for the data, a place for it, and the authorities for TLS to Postgres. All but the
# data is one tree, since a directory that is itself the target of COPY does not keep its mode (/tmp).
RUN mkdir -p /out/data /out/root/etc/ssl/certs /out/root/tmp && chmod 1777 /out/root/tmp \
 && echo 'pgbroker:x:65532:65532::/var/lib/pgbroker:/sbin/nologin' > /out/root/etc/passwd \
 && { cp /etc/ssl/certs/ca-certificates.crt /out/root/etc/ssl/certs/ 2>/dev/null || true; }

FROM ${BASE_IMAGE}
COPY --from=build /out/root/ /
COPY --from=build --chown=65532:65532 /out/data /var/lib/pgbroker
USER 65532:65532
ENV KAFKA_LOG_DIRS=/var/lib/pgbroker PGBROKER_HTTP_LISTEN=0.0.0.0:9404
VOLUME /var/lib/pgbroker
EXPOSE 9092 9404
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s CMD ["/usr/bin/pgbroker", "status", "--wait", "ready", "--for", "1s"]
ENTRYPOINT ["/usr/bin/pgbroker"]
CMD ["serve"]
