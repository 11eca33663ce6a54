import * as z from "zod";
import {
  isAppRedirect,
  isRedirectUri,
  isReverseDomainScheme,
  schemeOf,
} from "../../config/addresses.ts";

/** Hosts that are the user's own machine (RFC 8252, section 7.3). */
const loopbackHosts: ReadonlySet<string> = new Set(["localhost", "127.0.0.1", "[::1]"]);

/** True for a redirect by http to a program that listens on the user's own machine. */
export function isLoopbackRedirect(uri: string): boolean {
  const url = URL.parse(uri);
  return url?.protocol === "http:" && loopbackHosts.has(url.hostname);
}

/** True for a redirect to a program on the user's own machine, by http or by an app's scheme. */
export function staysOnMachine(uri: string): boolean {
  return schemeOf(uri) !== "https";
}

/** A host that can be reached: browsers let more stand in one, such as `a;b` and `*`. */
const host = /^(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])$/;

/** Characters of a URI (RFC 3986, appendix A): browsers read others as something else. */
const written = /^[a-z0-9+.-]+:\/[^\0-\x20"<>\\^`{|}\x7f-\uffff]*$/i;

/**
 * True for a redirect URI that a client may name for itself: https; http to the user's own machine,
 * where the port does not matter; or a native app's own scheme, if that is a domain name in reverse
 * or among `appSchemes` (RFC 8252, section 7).
 */
export function isClientRedirect(uri: string, appSchemes: readonly string[]): boolean {
  const url = URL.parse(uri);
  if (url === null || !written.test(uri)) return false;
  if (isAppRedirect(uri)) {
    const scheme = schemeOf(uri);
    return isReverseDomainScheme(scheme) || appSchemes.includes(scheme);
  }
  if (!isRedirectUri(uri) || !host.test(url.hostname)) return false;
  return loopbackHosts.has(url.hostname) === (url.protocol === "http:");
}

const MAX_REDIRECT_URIS = 10;
const MAX_URI_LENGTH = 2048;

/** Scripts and lines have no place in a name that is shown to a person who decides by it. */
const name = z
  .string()
  .trim()
  .min(1)
  .max(100)
  .regex(/^[^\p{C}\p{Zl}\p{Zp}]+$/u, "holds characters that cannot be shown")
  .refine((text) => !/\p{M}{5}/u.test(text), "piles up marks over what stands around it");

const grantType = z.enum(["authorization_code", "refresh_token"]);

const redirectUri = z.string().max(MAX_URI_LENGTH);
const badRedirect =
  "must be https, http on a loopback address, or of an app's own scheme, without a fragment";

/** What of RFC 7591, section 2, has a meaning here; everything else is left out. */
const metadataShape = z.object({
  client_name: name.optional(),
  redirect_uris: z.array(redirectUri).min(1).max(MAX_REDIRECT_URIS),
  token_endpoint_auth_method: z.literal("none").default("none"),
  grant_types: z
    .array(z.string())
    .default(["authorization_code", "refresh_token"])
    .transform((types) => types.filter((type) => grantType.safeParse(type).success))
    .refine((types) => types.includes("authorization_code"), "must hold authorization_code"),
  response_types: z
    .array(z.string())
    .default(["code"])
    .refine((types) => types.includes("code"), "must hold code")
    .transform((): "code"[] => ["code"]),
});

/** A public client's metadata, as far as it counts. */
export type ClientMetadata = z.infer<typeof metadataShape>;

/** The metadata of a client cannot be used. */
export class ClientMetadataError extends Error {
  /** The error code of RFC 7591, section 3.2.2. */
  readonly code: "invalid_redirect_uri" | "invalid_client_metadata";

  constructor(path: string, reason: string) {
    super(path === "" ? reason : `${path}: ${reason}`);
    this.name = "ClientMetadataError";
    this.code = path.startsWith("redirect_uris")
      ? "invalid_redirect_uri"
      : "invalid_client_metadata";
  }
}

/**
 * Reads what a client says of itself.
 *
 * @param isRedirect whether the client may have its answers sent there
 * @throws ClientMetadataError
 */
export function readClientMetadata(
  value: unknown,
  isRedirect: (uri: string) => boolean,
): ClientMetadata {
  const parsed = metadataShape.safeParse(value);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new ClientMetadataError(issue?.path.join(".") ?? "", issue?.message ?? "is no metadata");
  }
  const bad = parsed.data.redirect_uris.findIndex((uri) => !isRedirect(uri));
  if (bad !== -1) throw new ClientMetadataError(`redirect_uris.${bad}`, badRedirect);
  return parsed.data;
}

/**
 * The record of a client as it is kept. The application type is the one under which any port of a
 * loopback redirect is the same one (RFC 8252, section 7.3); redirects to the web work with it too.
 */
export function clientRecord(clientId: string, metadata: ClientMetadata) {
  const { client_name, ...rest } = metadata;
  return {
    ...rest,
    client_id: clientId,
    application_type: "native",
    ...(client_name === undefined ? {} : { client_name }),
  } as const;
}
