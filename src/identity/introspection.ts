import type { JWTPayload } from "jose";
import * as z from "zod";
import { messageOf } from "../client-error.ts";
import { readCredential } from "../config/resolve.ts";
import type { IssuerSettings } from "../config/schema.ts";
import { fingerprint } from "../files/watch.ts";
import { fetchJson, ISSUER_TIMEOUT_MS, IssuerUnreachable, RETRY_MS } from "./issuer-keys.ts";

export type Introspection = NonNullable<IssuerSettings["introspection"]>;

const seconds = z.number().nonnegative().optional();
const answerShape = z.looseObject({
  active: z.boolean(),
  iss: z.string().optional(),
  exp: seconds,
  iat: seconds,
  nbf: seconds,
});

/** As much as a client may cause by inventing tokens. */
const MAX_IN_FLIGHT = 64;

/** `application/x-www-form-urlencoded` (RFC 6749, section 2.3.1). */
function formEncode(text: string): string {
  return new URLSearchParams([["", text]]).toString().slice(1);
}

/** Reads a secret again once its file has changed. The last good one stays in use. */
function createSecretReader(file: string): () => string {
  let known: { readonly mark: string | undefined; readonly secret: string } | undefined;
  return () => {
    const mark = fingerprint(file);
    if (known?.mark === mark && known !== undefined) return known.secret;
    try {
      const refusal = (allowed: string) => new Error(`${file} is not ${allowed}`);
      known = { mark, secret: readCredential(file, false, refusal) };
    } catch (error) {
      if (known === undefined) throw error;
    }
    return known.secret;
  };
}

/**
 * Asks an issuer about tokens (RFC 7662). Concurrent questions about one token are one request.
 *
 * @returns the claims of an active token, otherwise undefined, or throws IssuerUnreachable
 */
export function createIntrospection(
  settings: Introspection,
): (token: string) => Promise<JWTPayload | undefined> {
  const { url, client_id: client, client_secret_file: file } = settings;
  const readSecret = createSecretReader(file);
  const inFlight = new Map<string, Promise<JWTPayload | undefined>>();

  async function ask(token: string): Promise<JWTPayload | undefined> {
    if (inFlight.size > MAX_IN_FLIGHT) throw new IssuerUnreachable("too many questions", 1000);
    try {
      const pair = `${formEncode(client)}:${formEncode(readSecret())}`;
      const answer = await fetchJson(new URL(url), {
        method: "POST",
        signal: AbortSignal.timeout(ISSUER_TIMEOUT_MS),
        headers: { authorization: `Basic ${Buffer.from(pair).toString("base64")}` },
        body: new URLSearchParams({ token, token_type_hint: "access_token" }),
      });
      const { active, ...claims } = answerShape.parse(answer);
      return active ? (claims as JWTPayload) : undefined;
    } catch (cause) {
      if (cause instanceof IssuerUnreachable) throw cause;
      const detail = messageOf(cause);
      throw new IssuerUnreachable(detail, RETRY_MS, cause);
    }
  }

  return (token) => {
    const asked = inFlight.get(token);
    if (asked !== undefined) return asked;
    const asking = ask(token).finally(() => inFlight.delete(token));
    inFlight.set(token, asking);
    return asking;
  };
}
