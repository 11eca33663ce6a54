/**
 * Version, trace id, parent id and flags, none of the ids all zeros; versions after the first may
 * have more behind that (W3C Trace Context, section 3.2).
 */
const traceParent =
  /^(?!ff|00.{54})[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?$/;

/** Where the trace id stands in it. */
const [ID_START, ID_END] = [3, 35];

/** The trace that a `traceparent` header names; undefined if it breaks the form in any way. */
export function traceIdOf(header: string | string[] | undefined): string | undefined {
  if (typeof header !== "string" || !traceParent.test(header)) return undefined;
  return header.slice(ID_START, ID_END);
}
