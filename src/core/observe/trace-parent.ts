/**
 * Version, trace id, parent id and flags; no id is all zeros. Versions after the first may have
 * more fields (W3C Trace Context, section 3.2).
 */
const traceParent =
  /^(?!ff|00.{54})[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?$/;

/** The trace id of a `traceparent` header; undefined if the header is malformed. */
export function traceIdOf(header: string | string[] | undefined): string | undefined {
  return typeof header === "string" ? traceParent.exec(header)?.[1] : undefined;
}
