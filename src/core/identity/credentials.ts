import { isUtf8 } from "node:buffer";
import type { IncomingHttpHeaders } from "node:http";
import { Refusal } from "../base/refusal.ts";
import { tokenHeadersOf } from "../config/schema.ts";

/** The credentials that open endpoints besides those for data. */
export const bearerOnly: readonly string[] = ["bearer"];

/** A token, or a username with its password. */
export type Credential =
  | { readonly token: string }
  | { readonly username: string; readonly password: string };

/** RFC 6750, section 2.1. @throws Refusal `token_invalid` */
function requireTokenForm(text: string): string {
  if (/^[A-Za-z0-9._~+/-]+=*$/.test(text)) return text;
  throw new Refusal("token_invalid", { detail: "no bearer token" });
}

/** RFC 6750, section 2.1. @throws Refusal `unauthenticated`, `token_invalid` */
export function readBearerToken(header: string | undefined): string {
  if (header === undefined) throw new Refusal("unauthenticated");
  const [, token = ""] = /^bearer +(.*)$/i.exec(header) ?? [];
  return requireTokenForm(token);
}

/** A signed JWT in compact form: its header begins with `{"` (RFC 7519, section 3). */
const signedToken = /^eyJ[\w-]*\.[\w-]+\.[\w-]+$/;

/**
 * A username and a password, or any username and a token (RFC 7617, section 2).
 *
 * @throws Refusal `credentials_invalid`
 */
function readBasic(encoded: string): Credential {
  const bytes = Buffer.from(encoded, "base64");
  const text = bytes.toString();
  const [, username, password] = /^([^:]*):(.*)$/s.exec(text) ?? [];
  const isValid = /^[A-Za-z0-9+/]+={0,2}$/.test(encoded) && isUtf8(bytes);
  if (!isValid || username === undefined || password === undefined) {
    throw new Refusal("credentials_invalid", { detail: "not in the form of RFC 7617" });
  }
  return signedToken.test(password) ? { token: password } : { username, password };
}

/** How a client sends what `auth.accept` lists, for messages. */
const forms: Readonly<Record<string, string>> = {
  bearer: "Authorization: Bearer",
  basic: "Authorization: Basic",
  apikey: "Authorization: ApiKey",
};

function formsOf(accept: readonly string[]): string {
  return accept.map((one) => forms[one] ?? `the header ${one.slice("header:".length)}`).join(", ");
}

function isBearerOnly(accept: readonly string[]): boolean {
  return accept.length === 1 && accept[0] === "bearer";
}

/**
 * Reads the one credential of a request.
 *
 * @param accept the kinds of `auth.accept`
 * @throws Refusal `unauthenticated`, `token_invalid` or `credentials_invalid`
 */
export function readCredential(
  headers: IncomingHttpHeaders,
  accept: readonly string[],
): Credential {
  const { authorization } = headers;
  if (isBearerOnly(accept)) return { token: readBearerToken(authorization) };
  if (authorization === undefined) {
    const name = tokenHeadersOf(accept).find((one) => headers[one] !== undefined);
    if (name !== undefined) return { token: requireTokenForm(String(headers[name])) };
    const message = `Missing credential; accepted: ${formsOf(accept)}`;
    throw new Refusal("unauthenticated", { message });
  }
  const [, scheme = "", value = ""] = /^([A-Za-z]+) +(.*)$/.exec(authorization) ?? [];
  const kind = scheme.toLowerCase();
  if (!accept.includes(kind)) {
    const message = `Invalid credential; accepted: ${formsOf(accept)}`;
    throw new Refusal("token_invalid", { message, detail: "scheme not accepted" });
  }
  return kind === "basic" ? readBasic(value) : { token: requireTokenForm(value) };
}

/**
 * The values of `WWW-Authenticate`, one for each kind of `auth.accept` (RFC 9110, section 11.6.1).
 *
 * @param bearer the parameters of the challenge for bearer tokens
 */
export function challengesOf(accept: readonly string[], bearer: string): string[] {
  const challenges: Readonly<Record<string, string>> = {
    bearer: `Bearer ${bearer}`,
    // RFC 7617, sections 2 and 2.1.
    basic: 'Basic realm="gatehouse", charset="UTF-8"',
    apikey: "ApiKey",
  };
  return accept.map(
    (one) => challenges[one] ?? `Header realm="gatehouse", name="${one.slice("header:".length)}"`,
  );
}
