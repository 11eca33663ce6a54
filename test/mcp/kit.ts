import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { buffer } from "node:stream/consumers";
import type { Test } from "tap";
import { collectGrants, entriesIn } from "../../src/access/entries.ts";
import { decide, decideQuery } from "../../src/access/policy.ts";
import type { Decision } from "../../src/access/rights.ts";
import { type Role, roleAllows } from "../../src/access/roles.ts";
import { blankUser, grantsOf, type Snapshot } from "../../src/access/snapshot.ts";
import type { Principal } from "../../src/mcp/authenticate.ts";
import { createEmbeddedMcp } from "../../src/mcp/embedded.ts";
import type { QueryAnswer } from "../../src/mcp/tool-results.ts";
import type { ToolContext } from "../../src/mcp/tools.ts";
import { type McpScope, mcpScopes } from "../../src/oauth/server/protocol.ts";
import { createGrammar } from "../../src/query/grammar.ts";
import type { Level } from "../../src/query/kind.ts";
import type { PermissionClass } from "../../src/query/query.ts";
import { scan } from "../../src/query/scan.ts";
import { Refusal } from "../../src/refusal.ts";
import { createSchemaSource, type SchemaSource } from "../../src/upstream/schema-source.ts";
import { freshEngine, send } from "../engine/kit.ts";
import type { FreshEngine } from "../engine/over-each.ts";
import { listening } from "../kit/listening.ts";

const grammar = createGrammar({ extraFields: [], operations: {} });

export interface Endpoint {
  readonly url: string;
  principal: Principal;
}

export type Grants = Readonly<Record<string, Readonly<Record<string, Role>>>>;

/** A snapshot with only grants. */
export function snapshotOf(grants: Grants): Snapshot {
  const byUser = Object.entries(grants).map(([username, roles]) => {
    const entries = Object.entries(roles).map(([database, role]) => ({ username, database, role }));
    return [username, collectGrants(entries)] as const;
  });
  const databases = Object.values(grants).flatMap((roles) => Object.keys(roles));
  return {
    version: "test",
    users: new Map(),
    groups: new Map(),
    grants: new Map(byUser),
    databases: new Map(databases.map((name) => [name.toLowerCase(), name])),
    boundaries: [],
  };
}

/** A caller with a token of these scopes, by default all. */
export function principalOf(username: string, scopes: readonly McpScope[] = mcpScopes): Principal {
  return {
    subject: { username, tokenDatabase: "*" },
    scopes: new Set(scopes),
    tokenId: `token of ${username}`,
    expiresAt: Number.MAX_SAFE_INTEGER,
    identify: () => blankUser(username),
  };
}

function callOf(principal: Principal) {
  return { caller: principal, principal, answerHeaders: () => [], onRefused() {} };
}

export function mayUseBy(snapshot: Snapshot) {
  return ({ subject }: Principal, permission: PermissionClass): boolean =>
    entriesIn(grantsOf(snapshot, subject.username)).some(({ role }) =>
      roleAllows(role, permission),
    );
}

/** Starts a server that ends with the test. */
export async function listen(
  t: Test,
  handle: (request: IncomingMessage, response: ServerResponse, body: Buffer) => Promise<void>,
): Promise<string> {
  const server = createServer((request, response) => {
    // As in the gateway, where several parts listen for the end of a stream.
    response.setMaxListeners(24);
    buffer(request)
      .then((body) => handle(request, response, body))
      .catch((error: unknown) => answerError(response, error));
  });
  return `http://127.0.0.1:${await listening(t, server)}/mcp`;
}

function answerError(response: ServerResponse, error: unknown): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const isKnown = error instanceof Refusal;
  response.writeHead(isKnown ? error.status : 500, { "content-type": "application/json" });
  response.end(JSON.stringify({ status: "error", code: isKnown ? error.code : String(error) }));
}

function askBy(snapshot: Snapshot, address: string) {
  return async (
    { subject }: Principal,
    body: Buffer,
    { largest }: { largest: number },
  ): Promise<QueryAnswer> => {
    const { allowed, decisions } = decideQuery(snapshot, subject, scan(body, grammar), {
      via: "mcp",
      now: Date.now(),
      isEngine: false,
    });
    if (!allowed) throw deniedBy(decisions.at(-1));
    const headers = { "content-type": "application/json" };
    const answer = await send(address, { method: "POST", path: "/query", headers }, body);
    const whole = Buffer.from(answer.text);
    const isCut = whole.length > largest;
    return { status: answer.status, body: whole.subarray(0, largest), isCut };
  };
}

function schemaBy(snapshot: Snapshot, address: string): SchemaSource<Principal> {
  return createSchemaSource<Principal>({
    upstreams: [
      {
        holds: () => true,
        async get(_caller, names) {
          const path = ["/schema", ...names].join("/");
          const { status, text } = await send(address, { path });
          return { status, headers: [], body: Buffer.from(text), isCut: false };
        },
      },
    ],
    visibilityDenial({ subject }, database) {
      const { reason } = decide(snapshot, subject, "SELECT", database);
      return reason === "allowed" ? undefined : reason;
    },
  });
}

const noSchema: SchemaSource<Principal> = createSchemaSource<Principal>({
  upstreams: [],
  visibilityDenial: () => undefined,
});

function deniedBy(decision: Decision | undefined): Refusal {
  const reason = decision?.reason ?? "no_grant";
  return new Refusal(reason === "allowed" ? "no_grant" : reason);
}

function whoIs({ subject, scopes }: Principal): object {
  const limits = { rows: 10, result_bytes: 1024 * 1024, message_bytes: 1024 * 1024, seconds: 30 };
  return { user: subject.username, scopes: [...scopes], access: [], limits };
}

async function maxRows(): Promise<undefined> {}

/** The URL of an embedded server whose queries are answered by `ask`. */
export async function openAnswering(t: Test, ask: ToolContext<Principal>["ask"]): Promise<string> {
  const handle = createEmbeddedMcp<Principal>({
    ...{ grammar, ask, schema: noSchema, maxRows, whoIs, mayUse: () => true },
    ...{ rowLimit: 10, resultBytes: 1024 * 1024, serverVersion: "1.0.0" },
  });
  return listen(t, (request, response, body) =>
    handle(request, response, body, callOf(principalOf("alice"))),
  );
}

interface EmbeddedSettingOptions {
  readonly grants: Grants;
  readonly rowLimit?: number;
  readonly resultBytes?: number;
  readonly hasSchema?: boolean;
  readonly level?: Level;
  readonly mayNeedApproval?: () => boolean;
  readonly fresh?: FreshEngine;
}

/** The embedded server over a real engine. The caller is `alice`. */
export async function openEmbedded(
  t: Test,
  {
    grants,
    rowLimit = 100,
    resultBytes = 1024 * 1024,
    hasSchema = true,
    level = "full",
    mayNeedApproval = () => false,
    fresh = freshEngine,
  }: EmbeddedSettingOptions,
) {
  const { engine, ask } = await fresh(t);
  const snapshot = snapshotOf(grants);
  const handle = createEmbeddedMcp({
    grammar: level === "full" ? grammar : createGrammar({ extraFields: [], operations: {}, level }),
    maxRows,
    whoIs,
    ask: askBy(snapshot, engine.address),
    schema: hasSchema ? schemaBy(snapshot, engine.address) : noSchema,
    rowLimit,
    resultBytes,
    mayUse: mayUseBy(snapshot),
    mayNeedApproval,
    serverVersion: "1.2.3",
  });
  const url = await listen(t, (request, response, body) =>
    handle(request, response, body, callOf(endpoint.principal)),
  );
  const endpoint: Endpoint = { url, principal: principalOf("alice") };
  return { endpoint, ask };
}
