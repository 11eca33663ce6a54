import { type LookupAddress, lookup as systemLookup } from "node:dns";
import { Resolver } from "node:dns/promises";
import { isIP, type LookupFunction } from "node:net";
import ipaddr from "ipaddr.js";
import { decodeProtectedHeader } from "jose";
import { LRUCache } from "lru-cache";
import { Provider } from "oidc-provider";
import { Agent, request } from "undici";
import * as z from "zod";
import { readBounded } from "../../../core/base/read-stream.ts";
import {
  isAppRedirect,
  isAppScheme,
  isRedirectUri,
  readScheme,
} from "../../../core/config/addresses.ts";
import { isObject, parseIfJson } from "../../../core/json/exact.ts";
import { OAuthProblem, tooMany } from "./http.ts";
import { JWT_BEARER, loopbackHosts } from "./protocol.ts";

const isLoopbackHost = ({ hostname }: URL) => loopbackHosts.some((host) => host === hostname);

export function isLoopbackRedirect(uri: string): boolean {
  const url = URL.parse(uri);
  return url?.protocol === "http:" && isLoopbackHost(url);
}

export function isLocalRedirect(uri: string): boolean {
  return readScheme(uri) !== "https";
}

/** Stricter than browsers, which also accept hosts such as `a;b` and `*`. */
const plainHost = /^(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])$/;

/** Characters of a URI (RFC 3986, appendix A). Browsers reinterpret others. */
const plainUri = /^[a-z0-9+.-]+:\/[^\0-\x20"<>\\^`{|}\x7f-\uffff]*$/i;

/** Also an empty one, which `URL` does not show. */
const userinfo = /^[^/]+:\/\/[^/?#]*@/;

/**
 * True for a redirect URI that clients may register (RFC 8252, section 7): https, http to the
 * user's own machine on any port, or a custom scheme. A custom scheme must be a reversed domain
 * name or listed in `appSchemes`.
 */
export function isClientRedirect(uri: string, appSchemes: readonly string[]): boolean {
  const url = URL.parse(uri);
  if (url === null || !plainUri.test(uri) || userinfo.test(uri)) return false;
  if (isAppRedirect(uri)) {
    const scheme = readScheme(uri);
    return (scheme.includes(".") && isAppScheme(scheme)) || appSchemes.includes(scheme);
  }
  if (!isRedirectUri(uri) || !plainHost.test(url.hostname)) return false;
  return isLoopbackHost(url) === (url.protocol === "http:");
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

const redirectUris = z.array(z.string().max(2048)).max(10);

/** The members of RFC 7591, section 2, that are used. All others are dropped. */
const metadataShape = z.object({
  client_name: name.optional(),
  redirect_uris: redirectUris.min(1),
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
  // A registration that asks for another method receives this one (RFC 7591, section 3.2.1).
  token_endpoint_auth_method: z
    .string()
    .default("none")
    .transform((): "none" => "none"),
});

type ClientMetadata = z.infer<typeof metadataShape>;

const member = z.string().min(1);
const anyKey = {
  kid: member.optional(),
  alg: member.optional(),
  use: member.optional(),
  d: z.undefined().optional(),
};
const publicKey = z.discriminatedUnion("kty", [
  z.object({ ...anyKey, kty: z.literal("EC"), crv: member, x: member, y: member }),
  z.object({ ...anyKey, kty: z.literal("OKP"), crv: member, x: member }),
  z.object({ ...anyKey, kty: z.literal("RSA"), n: member, e: member }),
]);

/** Public keys of a client. Other entries are ignored (RFC 7517, section 5). */
const keySet = z.object({
  keys: z
    .array(z.unknown())
    .transform((keys) => keys.flatMap((key) => publicKey.safeParse(key).data ?? []))
    .refine((keys) => keys.length > 0, "must contain a public key of type EC, OKP or RSA"),
});

/** Clients that authenticate with a key, and may therefore use assertions of a provider. */
const keyedShape = metadataShape
  .extend({
    redirect_uris: redirectUris.default([]),
    token_endpoint_auth_method: z.literal("private_key_jwt"),
    grant_types: z
      .array(z.string())
      .default(grantTypes)
      .transform((types) => types.filter((type) => [...grantTypes, JWT_BEARER].includes(type))),
    jwks: keySet.optional(),
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

/** The methods that a client document names: one, or a choice for the server. */
const methodsShape = z.looseObject({
  token_endpoint_auth_method: z.string().optional(),
  token_endpoint_auth_methods_supported: z.array(z.unknown()).default([]),
});

/** An error of RFC 7591, section 3.2.2. */
function badMetadata(path: string, reason: string): OAuthProblem {
  const isRedirect = path.startsWith("redirect_uris");
  const code = isRedirect ? "invalid_redirect_uri" : "invalid_client_metadata";
  return new OAuthProblem(400, code, path === "" ? reason : `${path}: ${reason}`);
}

/** Members that are null count as absent. */
function read<Metadata>(shape: z.ZodType<Metadata>, value: unknown): Metadata {
  const members = isObject(value) && Object.entries(value).filter(([, one]) => one !== null);
  const parsed = shape.safeParse(members ? Object.fromEntries(members) : value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw badMetadata(issue?.path.join(".") ?? "", issue?.message ?? "invalid metadata");
}

function requireRedirects(uris: readonly string[], isRedirect: (uri: string) => boolean): void {
  const bad = uris.findIndex((uri) => !isRedirect(uri));
  const uri = uris[bad];
  if (uri === undefined) return;
  const allowed =
    "must use https, http on a loopback address, or an app's own scheme, without a fragment";
  const reason = isAppRedirect(uri)
    ? `the scheme ${readScheme(uri)} is not in mcp.app_schemes, where the operator can allow it`
    : allowed;
  throw badMetadata(`redirect_uris.${bad}`, reason);
}

export function readClientMetadata(
  value: unknown,
  isRedirect: (uri: string) => boolean,
): ClientMetadata {
  const metadata = read(metadataShape, value);
  requireRedirects(metadata.redirect_uris, isRedirect);
  return metadata;
}

/**
 * Reads a client document, whose client may also authenticate with a key.
 *
 * @param hasAssertions whether the client may have the grant type of assertions
 */
export function readClientDocument(
  value: unknown,
  isRedirect: (uri: string) => boolean,
  hasAssertions: boolean,
) {
  const { token_endpoint_auth_method: preferred, token_endpoint_auth_methods_supported: others } =
    read(methodsShape, value);
  const methods = new Set([preferred, ...others]);
  const isPublic = methods.has("none") || (preferred === undefined && others.length === 0);
  if (!methods.has("private_key_jwt")) {
    if (isPublic) return readClientMetadata(value, isRedirect);
    throw badMetadata("token_endpoint_auth_method", "must be none or private_key_jwt");
  }
  const keyed = { ...Object(value), token_endpoint_auth_method: "private_key_jwt" };
  const { grant_types: grants, ...metadata } = read(keyedShape, keyed);
  requireRedirects(metadata.redirect_uris, isRedirect);
  const grant_types = grants.filter((type) => type !== JWT_BEARER || hasAssertions);
  if (grant_types.length === 0) throw badMetadata("grant_types", "contains no supported type");
  return { ...metadata, grant_types, [KEY_IS_OPTIONAL]: isPublic };
}

/** Own member of a client's record: its document allows it to leave its key out. */
export const KEY_IS_OPTIONAL = "key_is_optional";

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

export type DocumentFetch = (url: string) => Promise<ClientDocument>;

export interface ClientDocument {
  readonly body: string;
  readonly cacheControl: string | undefined;
}

/** In bytes, and the time for a whole fetch. */
export const DOCUMENT_LIMITS = { bytes: 5 * 1024, keySet: 64 * 1024, milliseconds: 5000 } as const;

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

/** For hosts that the operator has listed, which may be in the hosts file. */
const resolveListed: ResolveAll = (hostname, done) => systemLookup(hostname, { all: true }, done);

/**
 * The system looks up two names at a time. Names that anyone may choose, whose servers need not
 * answer, would keep the gateway from connecting to its database.
 */
const resolvePublic: ResolveAll = async (hostname, done) => {
  // A new one each time, since the name servers of the system may change.
  const resolver = new Resolver({ timeout: 2000, tries: 2 });
  const found = await Promise.allSettled([
    resolver.resolve4(hostname),
    resolver.resolve6(hostname),
  ]);
  const addresses = found.flatMap((one) => (one.status === "fulfilled" ? one.value : []));
  done(
    null,
    addresses.map((address) => ({ address, family: isIP(address) })),
  );
};

/** Follows no redirects. Addresses must be public unless the operator has listed the host. */
export function createDocumentFetch({
  privateHosts = [],
  resolve,
}: {
  privateHosts?: readonly string[];
  resolve?: ResolveAll;
} = {}): DocumentFetch {
  const open = (isAllowed: (address: string) => boolean, byDefault: ResolveAll) => ({
    isAllowed,
    agent: openAgent(isAllowed, resolve ?? byDefault),
  });
  const publicOnly = open(isPublicAddress, resolvePublic);
  const withPrivate = open(isNetworkAddress, resolveListed);
  const listed = new Set(privateHosts);
  return async (text) => {
    const url = new URL(text);
    if (url.protocol !== "https:") throw new Error("the document is not at an https URL");
    const { isAllowed, agent: dispatcher } = listed.has(url.host) ? withPrivate : publicOnly;
    // An address literal is not resolved, so the lookup does not check it.
    const literal = url.hostname.replace(/^\[|\]$/g, "");
    if (isIP(literal) !== 0 && !isAllowed(literal)) throw new Error("the address is not public");
    const { statusCode, headers, body } = await request(url, {
      dispatcher,
      signal: AbortSignal.timeout(DOCUMENT_LIMITS.milliseconds),
      headers: { accept: "application/json" },
    });
    if (statusCode !== 200) {
      body.on("error", () => {}).destroy();
      const hint = statusCode >= 300 && statusCode < 400 ? "; redirects are not followed" : "";
      throw new Error(`the document's server returned ${statusCode} instead of 200${hint}`);
    }
    const cacheControl = headers["cache-control"];
    const bytes = await readBounded(body, DOCUMENT_LIMITS.keySet);
    return {
      body: new TextDecoder("utf-8", { fatal: true }).decode(bytes),
      cacheControl: typeof cacheControl === "string" ? cacheControl : undefined,
    };
  };
}

/** The library keeps no key sets of client documents, and would fetch them for each request. */
const KEYS_AGE_MS = 60_000;
/** Keys that rotate are found earlier, but a made-up `kid` causes no further fetch. */
const KEYS_MIN_AGE_MS = 5000;
const MAX_KEY_SETS = 1000;

export interface DocumentRules {
  readonly fetchDocument: DocumentFetch;
  readonly readDocument: (document: unknown) => object;
  /** Whether the current request may fetch one more. */
  readonly mayFetch: () => Promise<boolean>;
  /** Called with the exact reason, which clients must not learn: it may describe the network. */
  readonly onRefused: (url: string, reason: string) => void;
}

/**
 * Fetches client documents and the key sets that they name. The library sees only validated
 * members, so that no document can make it fetch anything else.
 */
export function asLibraryFetch(
  rules: DocumentRules,
): (url: string | URL | Request) => Promise<Response> {
  const { fetchDocument, readDocument, mayFetch, onRefused } = rules;
  const keySets = new LRUCache<string, z.infer<typeof keySet>>({
    max: MAX_KEY_SETS,
    ttl: KEYS_AGE_MS,
  });
  // To report that a client is refused, the library looks it up again.
  const refusals = new WeakMap<object, OAuthProblem>();

  function knownKeys(url: string) {
    const known = keySets.get(url);
    if (known === undefined) return undefined;
    const assertion = Provider.ctx?.oidc.params?.client_assertion;
    const kid = typeof assertion === "string" ? decodeProtectedHeader(assertion).kid : undefined;
    const isNew = KEYS_AGE_MS - keySets.getRemainingTTL(url) < KEYS_MIN_AGE_MS;
    const isEnough = isNew || kid === undefined || known.keys.some((key) => key.kid === kid);
    return isEnough ? known : undefined;
  }

  async function load(url: string): Promise<Response> {
    if (!(await mayFetch())) throw tooMany("too many documents were fetched", 60);
    const { body, cacheControl } = await fetchDocument(url);
    const document = parseIfJson(body);
    if (document === undefined) throw badMetadata("", "the document is not JSON");
    const { client_id: clientId, keys } = isObject(document) ? document : {};
    if (clientId === undefined && keys !== undefined) {
      const found = read(keySet, document);
      keySets.set(url, found);
      return Response.json(found);
    }
    if (Buffer.byteLength(body) > DOCUMENT_LIMITS.bytes) {
      throw badMetadata("", `the document is larger than ${DOCUMENT_LIMITS.bytes} bytes`);
    }
    if (clientId !== url) throw badMetadata("client_id", "must be the URL of the document");
    const headers = cacheControl === undefined ? {} : { "cache-control": cacheControl };
    const client = { ...readDocument(document), application_type: "native", client_id: clientId };
    return Response.json(client, { headers });
  }

  return async (url) => {
    if (typeof url !== "string") throw new Error("only client documents are fetched");
    const known = knownKeys(url);
    if (known !== undefined) return Response.json(known);
    const context = Provider.ctx ?? {};
    const refusal = refusals.get(context);
    if (refusal !== undefined) throw refusal;
    try {
      return await load(url);
    } catch (error) {
      onRefused(url, error instanceof Error ? error.message : String(error));
      const isProblem = error instanceof OAuthProblem;
      const problem = isProblem ? error : badMetadata("", "the document cannot be fetched");
      refusals.set(context, problem);
      throw problem;
    }
  };
}
