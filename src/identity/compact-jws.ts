import { Refusal } from "../refusal.ts";

/** A JSON object as it was parsed: its members may be anything. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** A token that is none, for a reason that the log alone is told. */
export function invalidToken(detail: string, cause?: unknown): Refusal {
  return new Refusal("token_invalid", { detail, cause });
}

/** A JSON Web Signature taken apart (RFC 7515, section 7.1); nothing of it is verified. */
export interface CompactJws {
  readonly header: JsonObject;
  readonly payload: Buffer;
  /** The bytes that the signature is over: header and payload as they were sent. */
  readonly signed: Buffer;
  readonly signature: Buffer;
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * The bytes as a JSON object.
 *
 * @throws Refusal `token_invalid`
 */
export function readJson(bytes: Buffer): { text: string; content: JsonObject } {
  try {
    const text = utf8.decode(bytes);
    const content: unknown = JSON.parse(text);
    if (isObject(content)) return { text, content };
  } catch (cause) {
    throw invalidToken("no JSON", cause);
  }
  throw invalidToken("no JSON object");
}

function decode(part: string): Buffer {
  const bytes = Buffer.from(part, "base64url");
  // The decoder passes over what does not belong; there is one right spelling of these bytes.
  if (bytes.toString("base64url") !== part) throw invalidToken("no base64url");
  return bytes;
}

/**
 * Takes a token in the compact form apart.
 *
 * @throws Refusal `token_invalid`
 */
export function parseCompactJws(token: string): CompactJws {
  const [header, payload, signature, ...more] = token.split(".");
  if (header === undefined || payload === undefined || signature === undefined || more.length > 0) {
    throw invalidToken("no three parts");
  }
  return {
    header: readJson(decode(header)).content,
    payload: decode(payload),
    signed: Buffer.from(`${header}.${payload}`, "latin1"),
    signature: decode(signature),
  };
}
