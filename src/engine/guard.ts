import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { parse } from "content-type";
import { EngineRefusal } from "./refusal.ts";

/** `localhost`, `127.0.0.1` or `[::1]`, with or without a port. */
const loopbackHost = /^(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?$/i;

/**
 * Refuses a request whose `Host` is not a loopback name. A page that makes a browser resolve its
 * own name to 127.0.0.1 (DNS rebinding) gets no further than this.
 *
 * Throws `EngineRefusal` `host_not_allowed`.
 */
export function requireLoopbackHost(request: IncomingMessage): void {
  if (loopbackHost.test(request.headers.host ?? "")) return;
  throw new EngineRefusal("host_not_allowed", "The Host header must name the loopback interface");
}

/**
 * Refuses a request that does not carry the shared secret as its `Authorization` header.
 *
 * Throws `EngineRefusal` `unauthorized`.
 */
export function requireAuthorization(request: IncomingMessage, authorization: string): void {
  if (timingSafeEqual(digest(request.headers.authorization ?? ""), digest(authorization))) return;
  throw new EngineRefusal("unauthorized", "The Authorization header is not the engine's");
}

/**
 * Refuses a body that is not plain JSON. A browser sends this content type to another origin
 * only after asking, and the engine never answers yes.
 *
 * Throws `EngineRefusal` `unsupported_media_type`.
 */
export function requireJson(request: IncomingMessage): void {
  const { type } = parse(request.headers["content-type"] ?? "");
  const encoding = request.headers["content-encoding"] ?? "identity";
  if (type === "application/json" && encoding === "identity") return;
  throw new EngineRefusal(
    "unsupported_media_type",
    "A query is sent as application/json without a content encoding",
  );
}

/** Secrets of any length become digests of one length, as the comparison needs. */
function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}
