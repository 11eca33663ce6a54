/** Names of HTTP headers that the configuration may hand to the upstream. */
import { memoize } from "../memoize.ts";

const token = /^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$/;

/** Headers that belong to one connection (RFC 9110, section 7.6.1) and go no further. */
export const hopByHop: ReadonlySet<string> = new Set([
  ...["connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"],
  ...["te", "trailer", "transfer-encoding", "upgrade"],
]);

/**
 * A name as an upstream sees it that folds what is no letter or digit to one character, as CGI, WSGI
 * and PHP do: to them `X_Gatehouse_User`, `X.Gatehouse.User` and `X-Gatehouse-User` are one.
 */
export const foldHeader = memoize((name) => name.toLowerCase().replaceAll(/[^a-z0-9]/g, "-"), 256);

/** Hop-by-hop headers, credentials, framing, and what the gateway itself sets. */
const refused = new Set([
  ...hopByHop,
  ...["authorization", "cookie", "host", "content-length"],
  ...["forwarded", "x-real-ip", "x-request-id"],
]);
const refusedPrefixes = ["x-gatehouse-", "x-forwarded-"];

/** True for a header name (RFC 9110, section 5.1) that a client's request may carry upstream. */
export function isForwardableHeader(name: string): boolean {
  if (!token.test(name)) return false;
  const folded = foldHeader(name);
  return !refused.has(folded) && !refusedPrefixes.some((prefix) => folded.startsWith(prefix));
}

/** True for a field value of visible ASCII with inner spaces (RFC 9110, section 5.5). */
export function isHeaderValue(text: string): boolean {
  return text.length <= 8192 && /^[!-~](?:[ -~]*[!-~])?$/.test(text);
}
