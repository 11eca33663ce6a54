import { createPrivateKey, type KeyObject } from "node:crypto";
import { closeSync, constants, fstatSync, openSync, readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import type { z } from "zod";
import { systemCode } from "../base/client-error.ts";
import { permissionProblem } from "../base/files/guarded.ts";
import type { ValuePath } from "../base/toml.ts";
import { sqliteDirectory, unixSocketPath } from "./addresses.ts";
import { type Checked, valueProblem } from "./issues.ts";
import { isHeaderValue } from "./kinds.ts";
import { ConfigurationError } from "./problem.ts";
import { type configurationSchema, serviceFiles, storeKeyFile } from "./schema.ts";

export type Draft = z.output<typeof configurationSchema>;

export const credentialSections = ["upstream", "mcp"] as const;

/**
 * Makes every path absolute. Relative paths start at the directory of the file. The two files of
 * `[auth]` and the key of `[store]` start at the service directory if they have their default names
 * without a directory.
 */
export function resolvePaths(
  configuration: Draft,
  file: string | undefined,
  serviceDirectory: string,
): void {
  const { server, auth, upstream, audit, mcp, store, issuers, approvals } = configuration;
  const base = file === undefined ? serviceDirectory : dirname(file);
  const resolveIn = <Key extends string>(
    section: { readonly [Name in Key]?: string | undefined } | undefined,
    ...keys: readonly Key[]
  ): void => {
    for (const key of keys) {
      const path = section?.[key];
      if (section && path !== undefined) Object.assign(section, { [key]: resolve(base, path) });
    }
  };
  const resolveService = (path: string, byDefault: string) =>
    resolve(path === byDefault ? serviceDirectory : base, path);
  for (const key of ["access_control_file", "revocations_file"] as const) {
    auth[key] = resolveService(auth[key], serviceFiles[key]);
  }
  store.key_file = resolveService(store.key_file, storeKeyFile);
  for (const section of [upstream, mcp]) resolveIn(section, "authorization_file");
  resolveIn(upstream.credential, "file");
  for (const issuer of issuers) {
    resolveIn(issuer, "jwks_file");
    resolveIn(issuer.introspection, "client_secret_file");
    resolveIn(issuer.login, "client_secret_file", "private_key_file");
  }
  resolveIn(server.tls, "certificate", "key");
  resolveIn(approvals.notify, "secret_file");
  // That of a command is another one, and its readers expect no audit.
  if (audit.file === "/dev/stdout") delete audit.file;
  resolveIn(audit, "file");
  for (const where of [upstream, ...upstream.databases]) {
    if (where.url !== undefined) where.url = resolveUrl(base, where.url);
    if (where.urls !== undefined) where.urls = where.urls.map((url) => resolveUrl(base, url));
  }
}

function resolveUrl(base: string, url: string): string {
  const socket = unixSocketPath(url);
  if (socket !== undefined) return `unix:${resolve(base, socket)}`;
  const directory = sqliteDirectory(url);
  return directory === undefined ? url : `sqlite:${resolve(base, directory)}`;
}

/** A private key in PEM form, or as a JWK (RFC 7517). @throws Error */
export function parsePrivateKey(text: string): KeyObject {
  const isJwk = text.startsWith("{");
  return createPrivateKey(isJwk ? { key: JSON.parse(text), format: "jwk" } : text);
}

function isPrivateKey(text: string): boolean {
  try {
    return parsePrivateKey(text).type === "private";
  } catch {
    return false;
  }
}

/** Text in UTF-8. Other bytes are read as replacement characters. */
function isSecret(text: string): boolean {
  return text !== "" && !text.includes("\ufffd");
}

const contents = {
  credential: [isHeaderValue, "a file of one line of visible ASCII characters"],
  "private key": [isPrivateKey, "a file with a private key, in PEM or JWK form"],
  secret: [isSecret, "a file of text that is not empty"],
} as const;

type CredentialKind = keyof typeof contents;

/** @param refusal makes the error, given what is allowed */
export function readCredential(
  path: string,
  checkReaders: boolean,
  kind: CredentialKind = "credential",
  refusal: (allowed: string) => Error = (allowed) => new Error(`${path} is not ${allowed}`),
): string {
  const [isValid, form] = contents[kind];
  let descriptor: number;
  try {
    // Without O_NONBLOCK, a pipe would block the start forever.
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    const code = systemCode(error) || "unknown error";
    throw Object.assign(refusal(`a file that can be read (${code}: ${path})`), { cause: error });
  }
  try {
    const stats = fstatSync(descriptor);
    if (!stats.isFile()) throw refusal("a regular file");
    const problem = permissionProblem(path, stats, checkReaders);
    if (problem !== undefined) {
      const { reason, remedy } = problem;
      throw refusal(`a file with safe permissions, but ${reason}; run: ${remedy}`);
    }
    const text = readFileSync(descriptor, "utf8");
    // Both sides of a signature must read the same bytes.
    const value = kind === "secret" ? text.replace(/\r?\n$/, "") : text.trim();
    if (isValid(value)) return value;
    throw refusal(form);
  } finally {
    closeSync(descriptor);
  }
}

/** Reads a file at each call, since it may change. The last good content stays in use. */
export function credentialReader(path: string, kind?: CredentialKind): () => string {
  let content: string | undefined;
  return () => {
    try {
      content = readCredential(path, false, kind);
    } catch (error) {
      if (content === undefined) throw error;
    }
    return content;
  };
}

export function readCredentials(draft: Draft, checked: Checked): void {
  const read = (path: ValuePath, file: string, kind?: CredentialKind): string => {
    const refusal = (allowed: string) =>
      new ConfigurationError([valueProblem(path, allowed, checked)]);
    return readCredential(file, draft.auth.check_permissions, kind, refusal);
  };
  for (const name of credentialSections) {
    const { authorization_file: file } = draft[name];
    if (file === undefined) continue;
    draft[name].authorization = read([name, "authorization_file"], file);
  }
  // The others are read again later, so that they can be replaced.
  const credential = draft.upstream.credential?.file;
  if (credential !== undefined) read(["upstream", "credential", "file"], credential);
  const secret = draft.approvals.notify?.secret_file;
  if (secret !== undefined) read(["approvals", "notify", "secret_file"], secret, "secret");
  for (const [at, issuer] of draft.issuers.entries()) {
    const { introspection, login } = issuer;
    for (const [section, key, file] of [
      ["introspection", "client_secret_file", introspection?.client_secret_file],
      ["login", "client_secret_file", login?.client_secret_file],
      ["login", "private_key_file", login?.private_key_file],
    ] as const) {
      if (file === undefined) continue;
      const kind = key === "private_key_file" ? "private key" : "credential";
      read(["issuers", at, section, key], file, kind);
    }
  }
}
