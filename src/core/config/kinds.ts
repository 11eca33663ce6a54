import { strictObject, z } from "zod";
import { memoize } from "../base/memoize.ts";
import {
  isBaseUrl,
  isServerUrl,
  normalBaseUrl,
  parseListenAddress,
  serverUrlProblem,
} from "./addresses.ts";

const token = /^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$/;

/** Headers of a single connection, which are not forwarded (RFC 9110, section 7.6.1). */
export const hopByHop: ReadonlySet<string> = new Set([
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/**
 * Folds a header name as upstreams with CGI, WSGI or PHP do: every character except letters and
 * digits becomes one. To them `X_Gatehouse_User`, `X.Gatehouse.User` and `X-Gatehouse-User` are the
 * same.
 */
export const foldHeader = memoize((name) => name.toLowerCase().replaceAll(/[^a-z0-9]/g, "-"), 256);

/** Hop-by-hop headers, credentials, framing, and headers that the gateway itself sets. */
const refused = new Set([
  ...hopByHop,
  "authorization",
  "cookie",
  "host",
  "content-length",
  "forwarded",
  "x-real-ip",
  "x-request-id",
]);
const refusedPrefixes = ["x-gatehouse-", "x-forwarded-"];

/** True for a header name (RFC 9110, section 5.1) that may be forwarded upstream. */
export function isForwardableHeader(name: string): boolean {
  if (!token.test(name)) return false;
  const folded = foldHeader(name);
  return !refused.has(folded) && !refusedPrefixes.some((prefix) => folded.startsWith(prefix));
}

/** Headers that most requests have, or that the gateway itself reads. */
const meaningful =
  /^(?:accept(?:-.+)?|content-.+|expect|origin|sec-.+|user-agent|traceparent|tracestate|baggage)$/;

/** True for a header that can carry a caller's token. */
export function isTokenHeader(name: string): boolean {
  return isForwardableHeader(name) && !meaningful.test(foldHeader(name));
}

/** True for a header that can carry the gateway's own credential for an upstream. */
export function isCredentialHeader(name: string): boolean {
  return isForwardableHeader(name) || ["authorization", "cookie"].includes(name.toLowerCase());
}

/** True for a field value of visible ASCII with inner spaces (RFC 9110, section 5.5). */
export function isHeaderValue(text: string): boolean {
  return text.length <= 8192 && /^[!-~](?:[ -~]*[!-~])?$/.test(text);
}

/** Only a regular expression also appears in the JSON Schema of the file. */
export function text(allowed: string, rule: RegExp | ((text: string) => boolean)): z.ZodString {
  const string =
    rule instanceof RegExp ? z.string().regex(rule) : z.string().refine(rule, { abort: true });
  return string.meta({ title: allowed });
}

export const headerName: z.ZodString = text(
  "a header name that is not hop-by-hop, no credential, and not set by the gateway itself",
  isForwardableHeader,
);

export function flag(byDefault: boolean, description: string): z.ZodDefault<z.ZodBoolean> {
  return z.boolean().default(byDefault).describe(description);
}

/** Describes a key whose value the example shows, since it has no default that does. */
export function key<Kind extends z.ZodType>(kind: Kind, example: unknown, description: string) {
  return kind.meta({ description, examples: [example] });
}

export function live(description: string) {
  return { description, live: true };
}

export function wholeNumber(lowest: number, highest: number): z.ZodInt {
  return z.int().min(lowest).max(highest);
}

/** Up to a day. */
export const seconds: z.ZodInt = wholeNumber(1, 86_400);

export const filePath: z.ZodString = text("a path", (path) => path !== "" && !path.includes("\0"));

export const listenAddress: z.ZodString = text(
  "host:port, an IPv6 host in brackets",
  (listen) => parseListenAddress(listen) !== undefined,
);

export const publicUrl: z.ZodString = text(
  "an http:// or https:// URL without path, query and credentials, or an empty string",
  (url) => url === "" || isBaseUrl(url),
).overwrite(normalBaseUrl);

/** Reports a broken rule between keys, in words that follow `allowed:`. */
export function refuse(context: z.core.$RefinementCtx, path: PropertyKey[], allowed: string): void {
  context.addIssue({ code: "custom", path, params: { allowed } });
}

/** The keys of the gateway's own credential for an upstream: the value, or a file with it. */
export function credentialKeys(owner: string, exampleFile: string) {
  return {
    authorization: text("a header value of visible ASCII characters", isHeaderValue)
      .optional()
      .meta({
        description: `The gateway's own credential for ${owner}, sent in the Authorization header.`,
        examples: ["Bearer ..."],
        writeOnly: true,
      }),
    authorization_file: key(
      filePath.optional(),
      exampleFile,
      "File that contains that credential, instead of authorization. Others may not read it.",
    ),
  };
}

/** Refuses two credentials, since it would be unknown which one is meant. */
export function refuseTwoCredentials(
  credentials: Partial<Record<"authorization" | "authorization_file", string | undefined>>,
  context: z.core.$RefinementCtx,
): void {
  const { authorization, authorization_file: file } = credentials;
  if (authorization === undefined || file === undefined) return;
  refuse(context, ["authorization_file"], "either authorization or authorization_file, not both");
}

/** A table without required keys, which may be absent. */
export function section<Shape extends z.core.$ZodShape>(description: string, shape: Shape) {
  const table = strictObject(shape);
  return table.prefault({} as z.input<typeof table>).describe(description);
}

export type ValueAtPath = readonly [value: string, path: PropertyKey[]];

/** Refuses values that repeat an earlier one. `ruleFor` gets the earlier one. */
export function refuseRepeats(
  context: z.core.$RefinementCtx,
  values: readonly ValueAtPath[],
  ruleFor: (earlier: string) => string,
  foldValue: (value: string) => string = (value) => value,
): void {
  const seen = new Map<string, string>();
  for (const [value, path] of values) {
    const earlier = seen.get(foldValue(value));
    if (earlier === undefined) seen.set(foldValue(value), value);
    else refuse(context, path, ruleFor(earlier));
  }
}

export function distinct<Key extends string>(key: Key) {
  return (elements: Record<Key, string>[], context: z.core.$RefinementCtx): void => {
    const values = elements.map((element, at): ValueAtPath => [element[key], [at, key]]);
    refuseRepeats(context, values, () => "a value that no other one has");
  };
}

export const MEBIBYTE = 1024 * 1024;
export const GIBIBYTE = 1024 * MEBIBYTE;

/** Refuses the URL of a database server that the engine cannot use, and says why. */
export function refuseServerUrl(url: string, context: z.core.$RefinementCtx): void {
  const reason = isServerUrl(url) ? serverUrlProblem(url) : undefined;
  if (reason !== undefined) context.addIssue({ code: "custom", params: { reason } });
}
