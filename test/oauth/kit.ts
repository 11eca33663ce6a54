import { createHash, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import path from "node:path";
import { pino } from "pino";
import root, { type Test } from "tap";
import { parseAccessFile } from "../../src/core/access/parse.ts";
import { loadConfiguration } from "../../src/core/config/load.ts";
import type { IssuerSettings } from "../../src/core/config/schema.ts";
import { MemoryCounts, requestCounter } from "../../src/core/identity/counts.ts";
import { openHashing } from "../../src/core/identity/hashing.ts";
import { hashPassword } from "../../src/core/identity/password.ts";
import type { LiveRevocations } from "../../src/core/identity/revocations.ts";
import { createLoginThrottle } from "../../src/core/identity/throttle.ts";
import { Issuers } from "../../src/features/issuers/issuers.ts";
import { SignIns } from "../../src/features/oauth/client/sign-ins.ts";
import type {
  ClientDocument,
  DocumentFetch,
} from "../../src/features/oauth/server/client-documents.ts";
import type { ConfiguredClient } from "../../src/features/oauth/server/options.ts";
import {
  type AuthorizationServer,
  openAuthorizationServer,
} from "../../src/features/oauth/server/server.ts";
import { openStateIn } from "../../src/features/oauth/server/state-file.ts";
import { grant, user } from "../access/kit.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";

const costs = { memory: 64, time: 1, parallelism: 1 };

/** One for all tests of a file, since each starts a process. */
const hashing = openHashing(costs);
root.teardown(() => hashing.close());

export const PASSWORD = "correct horse";
export const REDIRECT = "http://127.0.0.1:4999/callback";
export const CONFIGURED = {
  client_id: "inspector",
  client_name: "Inspector",
  redirect_uris: ["https://inspector.example.com/callback"],
};

export interface OAuthSetup {
  readonly url: string;
  readonly directory: string;
  server: AuthorizationServer;
  signIns: SignIns | undefined;
  readonly events: { name: string; fields: Readonly<Record<string, unknown>> }[];
  /** Epoch seconds by username. Everything issued before is revoked. */
  readonly revokedBefore: Map<string, number>;
  setUsers(text: string): void;
  /** Closes the server and opens it again on the same state. @param issuer by default the same */
  restart(issuer?: string): Promise<void>;
}

/** The record of a user with this password. */
export async function userWith(username: string, password = PASSWORD, more = ""): Promise<string> {
  const hash = await hashPassword(password, costs);
  return user(username, `password_hash = "${hash}"\n${more}`);
}

/** Users of most tests: alice may change `main` and read `archive`, bob may read `main`. */
export async function defaultUsers(): Promise<string> {
  return [
    await userWith("alice"),
    await userWith("bob"),
    grant("alice", "main", "ReadWrite"),
    grant("alice", "archive", "ReadOnly"),
    grant("bob", "main", "ReadOnly"),
  ].join("");
}

interface OAuthSetupOptions {
  readonly documents?: DocumentFetch;
  readonly users?: string;
  readonly tokenLifetime?: number;
  readonly registrationsPerHour?: number;
  readonly clients?: readonly ConfiguredClient[];
  readonly issuer?: string;
  /** Whose assertions are accepted. */
  readonly providers?: readonly IssuerSettings[];
}

/** Starts a server that ends with the test. */
export async function openOAuthSetup(
  t: Test,
  options: OAuthSetupOptions = {},
): Promise<OAuthSetup> {
  const directory = path.join(temporaryHome(t), "oauth");
  const http = createServer((request, response) => setting.server.handle(request, response));
  const url = `http://127.0.0.1:${await listening(t, http)}`;
  const ownIssuer = options.issuer ?? url;
  const rules = options.users ?? (await defaultUsers());
  const access = { snapshot: parseAccessFile(rules, "access.toml") };
  const revokedBefore = new Map<string, number>();
  const events: OAuthSetup["events"] = [];
  const throttle = createLoginThrottle({ perUserAndAddress: 3, perAddress: 50, window: 60 });
  const unused = () => {
    throw new Error("unused");
  };
  const revocations: LiveRevocations = {
    users: revokedBefore,
    stale: false,
    isRevoked: ({ username, issuedAt }) => issuedAt < (revokedBefore.get(username) ?? 0),
    earliestIssue: (username) => revokedBefore.get(username) ?? 0,
    revoke: unused,
    revokeUser: unused,
    reload: unused,
    close: unused,
  };
  const login = {
    snapshot: () => access.snapshot,
    revocations,
    throttle,
    hashing,
    costs,
    change: async () => ({ ...access, changes: [] }),
    tokens: { issue: unused, verify: unused },
    tokenLifetime: 60,
    onUpgradeFailed: unused,
  };
  let state = await openStateIn(directory);
  const log = pino({ level: "silent" });
  const { providers } = options;
  const { auth, mcp } = loadConfiguration({ cwd: "/", env: {} }).configuration;
  const assertions = providers && new Issuers(providers, () => `${ownIssuer}/mcp`, log);
  t.teardown(() => assertions?.close());
  const open = async (issuer = ownIssuer) => {
    const signIns =
      providers &&
      assertions &&
      (await SignIns.open({ settings: providers, state, revocations, issuers: assertions, log }));
    const server = await openAuthorizationServer({
      issuer,
      configuration: {
        auth: { ...auth, token_expiration: options.tokenLifetime ?? 600 },
        mcp: {
          ...mcp,
          clients: [CONFIGURED, ...(options.clients ?? [])],
          app_schemes: ["editor"],
          registrations_per_hour: options.registrationsPerHour ?? 1000,
        },
      },
      state,
      login,
      countRequests: requestCounter(new MemoryCounts()),
      originOf: ({ socket }) => ({ address: socket.remoteAddress ?? "", isShared: false }),
      access,
      revocations,
      signIns,
      assertions,
      onEvent: (name, fields) => events.push({ name, fields }),
      log,
      ...(options.documents === undefined ? {} : { fetchDocument: options.documents }),
    });
    return { server, signIns };
  };
  const setting: OAuthSetup = {
    url,
    directory,
    ...(await open()),
    events,
    revokedBefore,
    setUsers: (text) => {
      access.snapshot = parseAccessFile(text, "access.toml");
    },
    restart: async (issuer) => {
      await state.store.close();
      state = await openStateIn(directory);
      Object.assign(setting, await open(issuer));
    },
  };
  t.teardown(() => state.store.close());
  return setting;
}

/** Runs a test with a server of its own. */
export function onServer(
  name: string,
  body: (t: Test, setting: OAuthSetup) => Promise<unknown>,
): void {
  root.test(name, async (t) => body(t, await openOAuthSetup(t)));
}

/** Client documents without a network. */
export function documentsOf(documents: Readonly<Record<string, unknown>>): DocumentFetch {
  return async (url): Promise<ClientDocument> => {
    const document = documents[url];
    if (document === undefined) throw new Error("no such document");
    return { body: JSON.stringify(document), cacheControl: undefined };
  };
}

export async function register(
  { url }: Pick<OAuthSetup, "url">,
  metadata: object = { client_name: "Notebook", redirect_uris: [REDIRECT] },
): Promise<{ status: number; body: Record<string, unknown>; headers: Headers }> {
  const answer = await fetch(`${url}/oauth/register`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(metadata),
  });
  return { status: answer.status, headers: answer.headers, body: await readBody(answer) };
}

/** Registers a client and returns its id. */
export async function registered(setting: Pick<OAuthSetup, "url">, metadata?: object) {
  return String((await register(setting, metadata)).body.client_id);
}

async function readBody(answer: Response): Promise<Record<string, unknown>> {
  const text = await answer.text();
  const body: unknown = text === "" ? {} : JSON.parse(text);
  return typeof body === "object" && body !== null ? { ...body } : {};
}

export async function postForm(
  url: string,
  fields: Readonly<Record<string, string>>,
): Promise<{ status: number; body: Record<string, unknown>; headers: Headers }> {
  const answer = await fetch(url, { method: "POST", body: new URLSearchParams(fields) });
  return { status: answer.status, headers: answer.headers, body: await readBody(answer) };
}

/** A verifier and its challenge (RFC 7636, section 4). */
export function makePkce(): { verifier: string; challenge: string } {
  const verifier = randomBytes(32).toString("base64url");
  return { verifier, challenge: createHash("sha256").update(verifier).digest("base64url") };
}

/** The URL of an authorization request. An empty parameter is left out. */
export function authorizeUrl(
  { url }: Pick<OAuthSetup, "url">,
  parameters: Readonly<Record<string, string>>,
): string {
  const all = {
    response_type: "code",
    redirect_uri: REDIRECT,
    scope: "mcp:tools mcp:resources",
    state: "s1",
    code_challenge: makePkce().challenge,
    code_challenge_method: "S256",
    resource: `${url}/mcp`,
    ...parameters,
  };
  const given = Object.entries(all).filter(([, value]) => value !== "");
  return `${url}/oauth/authorize?${new URLSearchParams(given)}`;
}
