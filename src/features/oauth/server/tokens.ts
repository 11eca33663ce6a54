import { isAnyUsername, isDatabaseOrEvery } from "../../../core/access/roles.ts";
import { epochSeconds } from "../../../core/base/clock.ts";
import { refusedToken } from "../../../core/identity/authenticate.ts";
import { invalidToken, isSeconds } from "../../../core/identity/jwt-verification.ts";
import { type KeyStore, keyState, openKeyRing } from "../../../core/identity/key-store.ts";
import { parseSignIn } from "../../../core/identity/sign-in.ts";
import { VerifiedTokens } from "../../../core/identity/token.ts";
import type { JsonObject } from "../../../core/json/exact.ts";
import type { Log } from "../../../core/observe/log.ts";
import { knownScopes } from "./connections.ts";
import { lifetimes, mcpResources, SIGNING_ALGORITHM } from "./protocol.ts";
import type { StateStore } from "./state-store.ts";

export type SigningKeys = Awaited<ReturnType<typeof openSigningKeys>>;

/** Creates the first key if necessary. @throws UnsafeFileError */
export async function openSigningKeys(store: KeyStore) {
  const ring = await openKeyRing(store, SIGNING_ALGORITHM);
  const usable = (await store.read()).filter(
    (key) => key.alg === SIGNING_ALGORITHM && keyState(key, epochSeconds()) !== "expired",
  );
  return {
    signer: ring.signer.kid,
    privateKeys: usable.map(({ kid, alg, jwk }) => ({ ...jwk, kid, alg, use: "sig" })),
    verifier: (kid: string) => ring.verifier(kid),
  };
}

const MAX_RECORDED_CALLS = 10_000;

function isText(value: unknown): value is string {
  return typeof value === "string" && value !== "";
}

/** Claims of an access token (RFC 9068). Times are epoch seconds. */
function readClaims(claims: JsonObject) {
  const { sub, database, read_only, scope, cred, jti, client_id, grant, iat, exp } = claims;
  if (!isAnyUsername(sub)) throw invalidToken("claim sub");
  if (!isDatabaseOrEvery(database)) throw invalidToken("claim database");
  if (typeof read_only !== "boolean") throw invalidToken("claim read_only");
  if (typeof scope !== "string") throw invalidToken("claim scope");
  if (typeof cred !== "string") throw invalidToken("claim cred");
  if (!isText(jti) || !isText(client_id) || !isText(grant)) {
    throw invalidToken("claim jti, client_id or grant");
  }
  if (!isSeconds(iat) || !isSeconds(exp)) throw invalidToken("claim iat or exp");
  return {
    username: sub,
    database,
    readOnly: read_only,
    scopes: new Set(knownScopes(scope)),
    credential: cred,
    tokenId: jti,
    clientId: client_id,
    grantId: grant,
    issuedAt: iat,
    expiresAt: exp,
  };
}

export type AccessTokens = ReturnType<typeof createAccessTokens>;
export type AccessToken = ReturnType<AccessTokens["verify"]>;

export function createAccessTokens(
  { issuer, store, log }: { issuer: string; store: StateStore; log: Log },
  keys: Pick<SigningKeys, "verifier">,
) {
  // RFC 9068, section 2.1
  const expected = { type: "at+jwt", issuer, audience: mcpResources(issuer), longest: 8192 };
  const verifier = (kid: string) => keys.verifier(kid);
  const tokens = new VerifiedTokens(
    { algorithm: SIGNING_ALGORITHM, verifier, ...expected },
    readClaims,
  );
  const recorded = new Set<string>();

  /** Records which tools an app has called, for its user. A failure never blocks a call. */
  function noteCall({ grantId, credential }: ReturnType<typeof readClaims>, tool: string): void {
    const call = `${grantId} ${tool}`;
    if (recorded.has(call)) return;
    if (recorded.size >= MAX_RECORDED_CALLS) recorded.clear();
    recorded.add(call);
    const expires = parseSignIn(credential)?.until ?? epochSeconds() + lifetimes.grant;
    store.noteCall(grantId, tool, expires).catch((error: unknown) => {
      log.warn({ err: error }, "a tool call was not recorded");
    });
  }

  return {
    /** @throws Refusal `token_invalid` or `token_expired` */
    read: (token: string) => tokens.verify(token),
    /** Also checks that the token is not revoked. The caller checks the user. @throws Refusal */
    verify(token: string) {
      const granted = tokens.verify(token);
      const { grantId, ...read } = granted;
      /** For streams that stay open. @throws Refusal `token_revoked` */
      const requireStillGranted = (): void => {
        const revoked = (detail: string) => refusedToken("token_revoked", read, detail);
        if (store.isTokenRevoked(read.tokenId)) throw revoked("revoked");
        if (store.isGrantEnded(grantId)) throw revoked("grant_revoked");
      };
      requireStillGranted();
      return { ...read, requireStillGranted, noteCall: (tool: string) => noteCall(granted, tool) };
    },
  };
}
