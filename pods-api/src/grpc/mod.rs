//! gRPC over HTTP/2: message framing, statuses, deadlines, and the services of this server.
