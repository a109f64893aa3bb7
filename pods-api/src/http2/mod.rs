//! A sans-I/O HTTP/2 server connection (RFC 9113) with HPACK (RFC 7541); knows nothing of gRPC.
