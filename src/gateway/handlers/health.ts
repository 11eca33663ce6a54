import { isReachable } from "../../upstream/probe.ts";
import { version } from "../../version.ts";
import { sendJson, sendSuccess } from "../answer.ts";
import type { Endpoint } from "../route.ts";

/** `GET /healthz`: the process lives. */
export const healthz: Endpoint = {
  door: "public",
  isQuiet: true,
  handle: (_gateway, exchange) => sendSuccess(exchange, 200, { version }),
};

/** `GET /readyz`: queries can be served, and by which state of the access file. */
export const readyz: Endpoint = {
  door: "public",
  isQuiet: true,
  async handle(gateway, exchange) {
    const isUp = await isReachable(gateway.target);
    sendJson(exchange, isUp ? 200 : 503, {
      status: isUp ? "success" : "error",
      upstream: isUp ? "up" : "down",
      access_file: gateway.access.stale ? "stale" : "fresh",
      access_version: gateway.access.snapshot.version,
      version,
    });
  },
};
