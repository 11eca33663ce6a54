import { calculateJwkThumbprint, exportJWK, importJWK, type JWK } from "jose";
import * as openid from "openid-client";
import { errorMessage } from "../../../core/base/client-error.ts";
import { readBounded } from "../../../core/base/read-stream.ts";
import { isConfidential } from "../../../core/config/addresses.ts";
import { credentialReader, parsePrivateKey } from "../../../core/config/resolve.ts";
import type { IssuerSettings } from "../../../core/config/schema.ts";
import {
  fetchFailure,
  fetchMetadata,
  ISSUER_TIMEOUT_MS,
  MAX_DOCUMENT_BYTES,
} from "../../issuers/issuer-keys.ts";

export type LoginIssuer = IssuerSettings & {
  readonly login: NonNullable<IssuerSettings["login"]>;
};

export interface ProviderAnswer {
  /** Its signature is not verified yet. Undefined if a refresh has brought none. */
  readonly idToken: string | undefined;
  readonly claims: openid.IDToken | undefined;
  readonly refreshToken: string | undefined;
  /** Undefined if the provider has no userinfo endpoint. */
  readonly userinfo: (() => Promise<openid.UserInfoResponse>) | undefined;
}

/** How the user has to authenticate at the provider. `maxAge` in seconds. */
export interface AuthenticationDemand {
  readonly prompt?: "login" | undefined;
  readonly maxAge?: number | undefined;
}

const METADATA_AGE_MS = 600_000;

/** Algorithms for `private_key_jwt`, by the kind of the key. */
const algorithms: Readonly<Record<string, string>> = {
  RSA: "RS256",
  "P-256": "ES256",
  "P-384": "ES384",
  "P-521": "ES512",
  Ed25519: "EdDSA",
};

/** The key's id is the JWK's own, otherwise its thumbprint (RFC 7638). */
async function importPrivateKey(text: string) {
  const jwk = await exportJWK(parsePrivateKey(text));
  const { alg, kid }: JWK = text.startsWith("{") ? JSON.parse(text) : {};
  const key = await importJWK(jwk, alg ?? algorithms[jwk.crv ?? jwk.kty ?? ""]);
  if (key instanceof Uint8Array) throw new Error("the private key is not asymmetric");
  return { key, kid: kid ?? (await calculateJwkThumbprint(jwk)) };
}

function clientAuthentication({
  client_secret_file: secretFile = "",
  private_key_file: keyFile,
}: LoginIssuer["login"]): openid.ClientAuth {
  if (keyFile !== undefined) {
    const readKey = credentialReader(keyFile, "private key");
    return async (...request) =>
      openid.PrivateKeyJwt(await importPrivateKey(readKey()))(...request);
  }
  const readSecret = credentialReader(secretFile);
  return (server, ...request) => {
    const { token_endpoint_auth_methods_supported: methods } = server;
    // Servers without this list support Basic (OpenID Connect Discovery, section 3).
    const isBasic = methods === undefined || methods.includes("client_secret_basic");
    const authenticate = isBasic ? openid.ClientSecretBasic : openid.ClientSecretPost;
    return authenticate(readSecret())(server, ...request);
  };
}

/** Bounds time and size of responses, and follows no redirect. */
const fetchBounded: openid.CustomFetch = async (url, options) => {
  if (!isConfidential(new URL(url))) throw new Error(`${url} does not use https`);
  const { body, ...rest } = options;
  try {
    const answer = await fetch(url, { ...rest, ...(body != null && { body }), redirect: "manual" });
    const bytes = answer.body === null ? null : await readBounded(answer.body, MAX_DOCUMENT_BYTES);
    return new Response(bytes, { status: answer.status, headers: answer.headers });
  } catch (error) {
    throw new Error(`${url} cannot be read: ${fetchFailure(error)}`);
  }
};

function readAnswer(
  configuration: openid.Configuration,
  tokens: openid.TokenEndpointResponse & openid.TokenEndpointResponseHelpers,
  subject: string,
): ProviderAnswer {
  const hasUserinfo = configuration.serverMetadata().userinfo_endpoint !== undefined;
  const userinfo = () => openid.fetchUserInfo(configuration, tokens.access_token, subject);
  return {
    idToken: tokens.id_token,
    claims: tokens.claims(),
    refreshToken: tokens.refresh_token,
    userinfo: hasUserinfo ? userinfo : undefined,
  };
}

interface RequestChecks {
  readonly state: string;
  readonly nonce: string;
  readonly verifier: string;
}

/** The gateway as a client of one identity provider (OpenID Connect Core). */
export class RelyingParty {
  readonly #settings: LoginIssuer;
  readonly #authenticate: openid.ClientAuth;
  #known: { readonly at: number; readonly configuration: openid.Configuration } | undefined;

  constructor(settings: LoginIssuer) {
    this.#settings = settings;
    this.#authenticate = clientAuthentication(settings.login);
  }

  /** Starts the code flow with PKCE (RFC 7636). `checks` are for `finish`. */
  async begin(
    redirectUri: string,
    { prompt, maxAge }: AuthenticationDemand,
  ): Promise<{ url: string; checks: RequestChecks }> {
    const configuration = await this.#configuration();
    const checks = {
      state: openid.randomState(),
      nonce: openid.randomNonce(),
      verifier: openid.randomPKCECodeVerifier(),
    };
    const url = openid.buildAuthorizationUrl(configuration, {
      redirect_uri: redirectUri,
      scope: [...new Set(["openid", ...this.#settings.login.scopes])].join(" "),
      state: checks.state,
      nonce: checks.nonce,
      code_challenge: await openid.calculatePKCECodeChallenge(checks.verifier),
      code_challenge_method: "S256",
      ...(prompt && { prompt }),
      // With `max_age` the ID token has `auth_time` (OpenID Connect Core, section 2).
      ...(maxAge !== undefined && { max_age: String(maxAge) }),
    });
    if (!isConfidential(url)) throw new Error(`${url.origin} does not use https`);
    return { url: url.href, checks };
  }

  /** @param url the redirect URI with the parameters of the answer */
  async finish(url: URL, { state, nonce, verifier }: RequestChecks): Promise<ProviderAnswer> {
    const configuration = await this.#configuration();
    const tokens = await openid.authorizationCodeGrant(configuration, url, {
      expectedState: state,
      expectedNonce: nonce,
      pkceCodeVerifier: verifier,
      idTokenExpected: true,
    });
    return readAnswer(configuration, tokens, tokens.claims()?.sub ?? "");
  }

  async refresh(refreshToken: string, subject: string): Promise<ProviderAnswer> {
    const configuration = await this.#configuration();
    const tokens = await openid.refreshTokenGrant(configuration, refreshToken);
    const answer = readAnswer(configuration, tokens, subject);
    if (answer.claims !== undefined && answer.claims.sub !== subject) {
      throw new ProviderRefused("another_user");
    }
    return answer;
  }

  /** Read again now and then, since metadata changes. */
  async #configuration(): Promise<openid.Configuration> {
    if (this.#known !== undefined && performance.now() - this.#known.at < METADATA_AGE_MS) {
      return this.#known.configuration;
    }
    const { issuer, login } = this.#settings;
    const server = new URL(issuer);
    const place = `${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`;
    const signal = AbortSignal.timeout(ISSUER_TIMEOUT_MS);
    const metadata = await fetchMetadata(new URL(place), issuer, signal);
    const { client_id: client } = login;
    const configuration = await openid.discovery(server, client, undefined, this.#authenticate, {
      [openid.customFetch]: async () => Response.json(metadata),
      timeout: ISSUER_TIMEOUT_MS / 1000,
      execute: server.protocol === "http:" ? [openid.allowInsecureRequests] : [],
    });
    configuration[openid.customFetch] = fetchBounded;
    this.#known = { at: performance.now(), configuration };
    return configuration;
  }
}

/** The provider says no, as opposed to an answer that is broken or missing. */
export class ProviderRefused extends Error {
  override readonly name = "ProviderRefused";

  /** @param detail a word for audit and log */
  constructor(detail: string, cause?: unknown) {
    super(detail, { cause });
  }
}

/** Errors of OAuth by which a server says that it, or this client, has a problem (RFC 6749, 5.2). */
const otherProblems = new Set([
  "invalid_client",
  "server_error",
  "temporarily_unavailable",
  "slow_down",
]);

/** Codes of the library for answers that arrived whole, and are not for this sign-in. */
const wrongAnswers = new Set<unknown>([
  "OAUTH_INVALID_RESPONSE",
  "OAUTH_JWT_CLAIM_COMPARISON_FAILED",
  "OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED",
  "OAUTH_JWT_TIMESTAMP_CHECK_FAILED",
]);

function isOAuthError(error: unknown) {
  return (
    error instanceof openid.ResponseBodyError || error instanceof openid.AuthorizationResponseError
  );
}

/** A sentence for audit and log, such as `invalid_client` with its description. */
export function describeProblem(error: unknown): string {
  if (isOAuthError(error)) {
    return [error.error, error.error_description].filter(Boolean).join(": ");
  }
  if (!(error instanceof openid.ClientError)) return errorMessage(error);
  const { message, cause } = error;
  if (cause instanceof Response) return `${message}: ${cause.status}`;
  return cause instanceof Error ? `${message}: ${cause.message}` : message;
}

/** A word for the reason if the provider has refused. Undefined if it could not be asked. */
export function refusalReason(error: unknown): string | undefined {
  if (error instanceof ProviderRefused) return error.message;
  if (error instanceof openid.ClientError && wrongAnswers.has(error.code)) return "invalid_answer";
  if (!isOAuthError(error) || otherProblems.has(error.error)) return undefined;
  // The user's browser brings the answer, and may have changed it.
  return /^\w{1,64}$/.test(error.error) ? error.error : "invalid_answer";
}
