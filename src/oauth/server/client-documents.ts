import { type LookupAddress, lookup as systemLookup } from "node:dns";
import { isIP, type LookupFunction } from "node:net";
import ipaddr from "ipaddr.js";
import { LRUCache } from "lru-cache";
import { Agent, request } from "undici";
import * as z from "zod";
import {
  isAppRedirect,
  isRedirectUri,
  isReverseDomainScheme,
  schemeOf,
} from "../../config/addresses.ts";
import { readBounded } from "../../read-stream.ts";
import { OAuthProblem } from "./http.ts";
import { JWT_BEARER } from "./protocol.ts";

/** Hosts that are the user's own machine (RFC 8252, section 7.3). */
const loopbackHosts: ReadonlySet<string> = new Set(["localhost", "127.0.0.1", "[::1]"]);

export function isLoopbackRedirect(uri: string): boolean {
  const url = URL.parse(uri);
  return url?.protocol === "http:" && loopbackHosts.has(url.hostname);
}

export function isLocalRedirect(uri: string): boolean {
  return schemeOf(uri) !== "https";
}

/** Stricter than browsers, which also accept hosts such as `a;b` and `*`. */
const plainHost = /^(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])$/;

/** Characters of a URI (RFC 3986, appendix A). Browsers reinterpret others. */
const plainUri = /^[a-z0-9+.-]+:\/[^\0-\x20"<>\\^`{|}\x7f-\uffff]*$/i;

/**
 * True for a redirect URI that clients may register (RFC 8252, section 7): https, http to the
 * user's own machine on any port, or a custom scheme. A custom scheme must be a reversed domain
 * name or listed in `appSchemes`.
 */
export function isClientRedirect(uri: string, appSchemes: readonly string[]): boolean {
  const url = URL.parse(uri);
  if (url === null || !plainUri.test(uri)) return false;
  if (isAppRedirect(uri)) {
    const scheme = schemeOf(uri);
    return isReverseDomainScheme(scheme) || appSchemes.includes(scheme);
  }
  if (!isRedirectUri(uri) || !plainHost.test(url.hostname)) return false;
  return loopbackHosts.has(url.hostname) === (url.protocol === "http:");
}

/** Users decide by this name, so it must not contain invisible characters or line breaks. */
const name = z
  .string()
  .trim()
  .min(1)
  .max(100)
  .regex(/^[^\p{C}\p{Zl}\p{Zp}]+$/u, "contains characters that cannot be displayed")
  .refine((text) => !/\p{M}{5}/u.test(text), "has too many combining marks in a row");

const grantTypes = ["authorization_code", "refresh_token"];
const badRedirect =
  "must use https, http on a loopback address, or an app's own scheme, without a fragment";

/** The members of RFC 7591, section 2, that are used. All others are dropped. */
const metadataShape = z.object({
  client_name: name.optional(),
  redirect_uris: z.array(z.string().max(2048)).min(1).max(10),
  token_endpoint_auth_method: z.literal("none").default("none"),
  grant_types: z
    .array(z.string())
    .default(grantTypes)
    .transform((types) => types.filter((type) => grantTypes.includes(type)))
    .refine((types) => types.includes("authorization_code"), "must contain authorization_code"),
  response_types: z
    .array(z.string())
    .default(["code"])
    .refine((types) => types.includes("code"), "must contain code")
    .transform((): "code"[] => ["code"]),
});

type ClientMetadata = z.infer<typeof metadataShape>;

/** Clients that authenticate with a key, and may therefore use assertions of a provider. */
const keyedShape = metadataShape
  .extend({
    redirect_uris: metadataShape.shape.redirect_uris.or(z.tuple([])).default([]),
    token_endpoint_auth_method: z.literal("private_key_jwt"),
    grant_types: z
      .array(z.string())
      .default(grantTypes)
      .transform((types) => types.filter((type) => [...grantTypes, JWT_BEARER].includes(type))),
    jwks: z.looseObject({ keys: z.array(z.looseObject({ kty: z.string() })) }).optional(),
    jwks_uri: z
      .url({ protocol: /^https$/ })
      .max(2048)
      .optional(),
  })
  .transform(({ response_types: _, ...metadata }) => {
    const usesCode = metadata.grant_types.includes("authorization_code");
    return { ...metadata, response_types: usesCode ? ["code"] : [] };
  })
  .refine(({ jwks, jwks_uri: uri }) => (jwks === undefined) !== (uri === undefined), {
    message: "must contain either jwks or jwks_uri",
  })
  .refine(({ response_types: types, redirect_uris: uris }) => types.length <= uris.length, {
    message: "must not be empty",
    path: ["redirect_uris"],
  });

/** An error of RFC 7591, section 3.2.2. */
function badMetadata(path: string, reason: string): OAuthProblem {
  const isRedirect = path.startsWith("redirect_uris");
  const code = isRedirect ? "invalid_redirect_uri" : "invalid_client_metadata";
  return new OAuthProblem(400, code, path === "" ? reason : `${path}: ${reason}`);
}

function readMetadata<Metadata extends { readonly redirect_uris: readonly string[] }>(
  shape: z.ZodType<Metadata>,
  value: unknown,
  isRedirect: (uri: string) => boolean,
): Metadata {
  const parsed = shape.safeParse(value);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw badMetadata(issue?.path.join(".") ?? "", issue?.message ?? "invalid metadata");
  }
  const bad = parsed.data.redirect_uris.findIndex((uri) => !isRedirect(uri));
  if (bad !== -1) throw badMetadata(`redirect_uris.${bad}`, badRedirect);
  return parsed.data;
}

export function readClientMetadata(
  value: unknown,
  isRedirect: (uri: string) => boolean,
): ClientMetadata {
  return readMetadata(metadataShape, value, isRedirect);
}

/** Reads a client document, whose client may also authenticate with a key. */
export function readClientDocument(value: unknown, isRedirect: (uri: string) => boolean) {
  const keyed = z.object({ token_endpoint_auth_method: z.literal("private_key_jwt") });
  return keyed.safeParse(value).success
    ? readMetadata(keyedShape, value, isRedirect)
    : readMetadata(metadataShape, value, isRedirect);
}

/** Only for `native` does the library ignore the port of loopback redirects (RFC 8252, 7.3). */
export function clientRecord(clientId: string, metadata: ClientMetadata) {
  const { client_name, ...rest } = metadata;
  return {
    ...rest,
    client_id: clientId,
    application_type: "native",
    ...(client_name === undefined ? {} : { client_name }),
  } as const;
}

/** The only public IPv6 range (RFC 4291, section 2.4). */
const globalUnicast = ipaddr.IPv6.parseCIDR("2000::/3");

export function isPublicAddress(address: string): boolean {
  if (!ipaddr.isValid(address)) return false;
  const parsed = ipaddr.process(address);
  if (parsed.range() !== "unicast") return false;
  return parsed.kind() === "ipv4" || parsed.match(globalUnicast);
}

const privateRanges = ["loopback", "private", "uniqueLocal", "carrierGradeNat"];

/** Link-local addresses are excluded: cloud metadata services hand out credentials there. */
export function isNetworkAddress(address: string): boolean {
  if (isPublicAddress(address)) return true;
  return ipaddr.isValid(address) && privateRanges.includes(ipaddr.process(address).range());
}

export type ResolveAll = (
  hostname: string,
  done: (error: Error | null, addresses: LookupAddress[]) => void,
) => void;

export type DocumentFetch = (url: string, signal: AbortSignal) => Promise<ClientDocument>;

export interface ClientDocument {
  readonly body: string;
  readonly cacheControl: string | undefined;
}

/** Limits of a document: body size in bytes, and time for the whole fetch. */
export const DOCUMENT_LIMITS = { bytes: 5 * 1024, milliseconds: 5000 } as const;

/**
 * Connection pool whose DNS lookup returns only allowed addresses. The socket connects to the
 * lookup's result, so the checked address is the one that is used. Each rule has its own pool, so
 * that no host benefits from another host's rule.
 */
function openAgent(isAllowed: (address: string) => boolean, resolve: ResolveAll): Agent {
  const lookup: LookupFunction = (hostname, options, done) => {
    resolve(hostname, (error, addresses) => {
      const [first] = addresses ?? [];
      if (error !== null || first === undefined) {
        done(error ?? new Error("the host has no address"), "", 0);
      } else if (!addresses.every(({ address }) => isAllowed(address))) {
        done(new Error("the host has an address that is not public"), "", 0);
      } else if (options.all === true) done(null, addresses);
      else done(null, first.address, first.family);
    });
  };
  const connect = { lookup, timeout: DOCUMENT_LIMITS.milliseconds };
  return new Agent({ connect, keepAliveTimeout: 1 });
}

/** Follows no redirects. Addresses must be public unless the operator has listed the host. */
export function createDocumentFetch({
  privateHosts = [],
  resolve = (hostname, done) => systemLookup(hostname, { all: true }, done),
}: {
  privateHosts?: readonly string[];
  resolve?: ResolveAll;
} = {}): DocumentFetch {
  const publicOnly = { isAllowed: isPublicAddress, agent: openAgent(isPublicAddress, resolve) };
  const withPrivate = { isAllowed: isNetworkAddress, agent: openAgent(isNetworkAddress, resolve) };
  const listed = new Set(privateHosts);
  return async (text, signal) => {
    const url = new URL(text);
    if (url.protocol !== "https:") throw new Error("the document is not at an https URL");
    const { isAllowed, agent: dispatcher } = listed.has(url.host) ? withPrivate : publicOnly;
    // An address literal is not resolved, so the lookup does not check it.
    const literal = url.hostname.replace(/^\[|\]$/g, "");
    if (isIP(literal) !== 0 && !isAllowed(literal)) throw new Error("the address is not public");
    const bounded = AbortSignal.any([signal, AbortSignal.timeout(DOCUMENT_LIMITS.milliseconds)]);
    const { statusCode, headers, body } = await request(url, {
      dispatcher,
      signal: bounded,
      headers: { accept: "application/json" },
    });
    if (statusCode !== 200) {
      body.destroy();
      throw new Error(`the document's server returned ${statusCode}`);
    }
    const cacheControl = headers["cache-control"];
    const bytes = await readBounded(body, DOCUMENT_LIMITS.bytes);
    return {
      body: new TextDecoder("utf-8", { fatal: true }).decode(bytes),
      cacheControl: typeof cacheControl === "string" ? cacheControl : undefined,
    };
  };
}

const keySetShape = z.object({
  keys: z.array(z.looseObject({})),
  client_id: z.undefined().optional(),
});
/** The library keeps no key sets of client documents, and would fetch them for each request. */
const KEYS_AGE_MS = 60_000;
const MAX_KEY_SETS = 1000;

/**
 * Fetches client documents and the key sets that they name. The library sees only validated
 * members, so that no document can make it fetch anything else.
 *
 * @param mayFetch whether the current request may fetch one more
 */
export function asLibraryFetch(
  fetchDocument: DocumentFetch,
  readDocument: (document: unknown) => object,
  mayFetch: () => Promise<boolean>,
): (url: string | URL | Request, options?: RequestInit) => Promise<Response> {
  const keySets = new LRUCache<string, object>({ max: MAX_KEY_SETS, ttl: KEYS_AGE_MS });
  return async (url, options) => {
    if (typeof url !== "string") throw new Error("only client documents are fetched");
    const known = keySets.get(url);
    if (known !== undefined) return Response.json(known);
    if (!(await mayFetch())) throw new Error("too many documents were fetched");
    const signal = options?.signal ?? AbortSignal.timeout(DOCUMENT_LIMITS.milliseconds);
    const { body, cacheControl } = await fetchDocument(url, signal);
    const document: unknown = JSON.parse(body);
    const { data: keySet } = keySetShape.safeParse(document);
    if (keySet !== undefined) {
      keySets.set(url, keySet);
      return Response.json(keySet);
    }
    const hasId = typeof document === "object" && document !== null && "client_id" in document;
    const client_id = hasId ? document.client_id : undefined;
    const headers = cacheControl === undefined ? {} : { "cache-control": cacheControl };
    const metadata = readDocument(document);
    return Response.json({ ...metadata, application_type: "native", client_id }, { headers });
  };
}
