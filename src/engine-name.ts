/**
 * What the engine's `/healthz` says in its `Server` header (RFC 9110, section 10.2.4). By it the
 * gateway knows that the status is that of the database, and not that of one more HTTP server.
 */
export const engineName = "gatehouse-engine";
