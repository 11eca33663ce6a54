import { readFile } from "node:fs/promises";
import { version } from "../base/product.ts";
import { Refusal, type RefusalCode, refusals } from "../base/refusal.ts";
import { sendJson, sendSuccess, sendText } from "./answer.ts";
import type { Endpoint } from "./route.ts";

export const healthz: Endpoint = {
  authentication: "public",
  isQuiet: true,
  handle: (_gateway, exchange) => sendSuccess(exchange, 200, { version }),
};

/** Beside `src` in a clone, and beside `dist` in the package. */
const document = new URL("../../../docs/openapi.yaml", import.meta.url);

/** `GET /openapi.yaml`: the description of this version. */
export const openapi: Endpoint = {
  authentication: "public",
  async handle(_gateway, exchange) {
    const text = await readFile(document, "utf8").catch((cause: unknown) => {
      throw new Refusal("not_found", { cause });
    });
    sendText(exchange, 200, text, [], "application/yaml");
  },
};

export const readyz: Endpoint = {
  authentication: "public",
  isQuiet: true,
  async handle(gateway, exchange) {
    const { lease, shared } = gateway;
    const isUp = await gateway.routing.isUp();
    const upstreamVersion = isUp ? await gateway.upstreamVersion?.() : undefined;
    let code: RefusalCode | undefined;
    if ((await shared.condition()).isEnding) code = "shutting_down";
    else if (lease?.isFresh === false) code = "store_unreachable";
    else if (!isUp) code = "upstream_unreachable";
    const issuers = gateway.issuers?.states;
    // A 503 has the fields of every other error.
    const problem = code && { message: refusals[code][1], code, request_id: exchange.requestId };
    sendJson(exchange, problem === undefined ? 200 : 503, {
      ...(problem === undefined ? { status: "success" } : { status: "error", ...problem }),
      upstream: isUp ? "up" : "down",
      upstream_version: upstreamVersion,
      ...(lease && {
        store: lease.isReachable ? "reached" : "unreachable",
        store_version: lease.appliedVersion,
        store_lag: lease.lag,
        lease_age: Math.round(lease.leaseAge) / 1000,
      }),
      access_file: gateway.access.stale ? "stale" : "fresh",
      revocations: gateway.revocations.stale ? "stale" : "fresh",
      keys: gateway.keys.failure === undefined ? "fresh" : "stale",
      ...(issuers === undefined ? {} : { issuers }),
      access_version: gateway.access.version,
      version,
    });
  },
};

/** `GET /.well-known/jwks.json`: the public keys that verify login tokens (RFC 7517). */
export const jwks: Endpoint = {
  authentication: "public",
  isQuiet: true,
  handle: (gateway, exchange) => sendJson(exchange, 200, gateway.keys.ring.jwks),
};
