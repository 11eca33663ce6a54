import { refusals } from "../../refusal.ts";
import { version } from "../../version.ts";
import { sendJson, sendSuccess } from "../answer.ts";
import type { Exchange } from "../exchange.ts";
import type { Endpoint } from "../route.ts";

/** `GET /healthz`: the process lives. */
export const healthz: Endpoint = {
  authentication: "public",
  isQuiet: true,
  handle: (_gateway, exchange) => sendSuccess(exchange, 200, { version }),
};

/** What makes a 503 an error like every other. */
function notReady({ requestId }: Exchange) {
  const code = "upstream_unreachable";
  return { status: "error", message: refusals[code][1], code, request_id: requestId };
}

/** `GET /readyz`: queries can be served, and by which state of the access file. */
export const readyz: Endpoint = {
  authentication: "public",
  isQuiet: true,
  async handle(gateway, exchange) {
    const isUp = await gateway.routing.isUp();
    sendJson(exchange, isUp ? 200 : 503, {
      ...(isUp ? { status: "success" } : notReady(exchange)),
      upstream: isUp ? "up" : "down",
      access_file: gateway.access.stale ? "stale" : "fresh",
      revocations: gateway.revocations.stale ? "stale" : "fresh",
      keys: gateway.keys.stale ? "stale" : "fresh",
      access_version: gateway.access.snapshot.version,
      version,
    });
  },
};
