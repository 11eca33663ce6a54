import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { importJWK, type JWK, type JWTHeaderParameters, SignJWT } from "jose";

export interface KeyFile {
  kid: string;
  alg: string;
  jwk: JWK;
}

export function readKeys(home: string): KeyFile[] {
  const directory = path.join(home, "keys");
  return readdirSync(directory)
    .filter((name) => name.endsWith(".json"))
    .map((name) => JSON.parse(readFileSync(path.join(directory, name), "utf8")));
}

export function readKey(home: string): KeyFile {
  const [key, ...others] = readKeys(home);
  if (key === undefined || others.length > 0) throw new Error("there is not exactly one key");
  return key;
}

export function decodePart(token: string, part: 0 | 1): Record<string, unknown> {
  return JSON.parse(Buffer.from(token.split(".")[part] ?? "", "base64url").toString());
}

export function encodePart(content: unknown): string {
  return Buffer.from(JSON.stringify(content)).toString("base64url");
}

export async function sign(
  key: KeyFile,
  header: JWTHeaderParameters,
  claims: Record<string, unknown>,
): Promise<string> {
  const signer = new SignJWT(claims).setProtectedHeader(header);
  return signer.sign(await importJWK(key.jwk, header.alg), { crit: { strange: true } });
}

/** Signs with ES256 whatever stands before the signature, also what no library would sign. */
export async function signText({ jwk }: KeyFile, text: string): Promise<string> {
  const key = await importJWK(jwk, "ES256");
  if (key instanceof Uint8Array) throw new Error("not an ES256 key");
  const algorithm = { name: "ECDSA", hash: "SHA-256" };
  const signature = await crypto.subtle.sign(algorithm, key, Buffer.from(text));
  return `${text}.${Buffer.from(signature).toString("base64url")}`;
}
