import type { Test } from "tap";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { queryHeaders, select } from "../kit/queries.ts";
import { tables } from "../kit/tables.ts";
import { Wire } from "../kit/wire.ts";
import { statelessCall } from "../mcp/messages.ts";
import { Witness } from "./witness.ts";

const methods = ["GET", "POST"];
const routes = tables("routes", [
  { path: "/open", methods, access: "public" },
  { path: "/db/:database/stats", methods, access: "SELECT", query: ["*"] },
]);
const policy = tables("mcp.tools", [{ name: "look", permission: "SELECT", database: "main" }]);

export interface Door {
  readonly name: string;
  readonly line: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export interface Site {
  readonly gateway: TestGateway;
  readonly witness: Witness;
  readonly token: string;
  readonly query: Door;
  readonly route: Door;
  readonly mcp: Door;
  readonly doors: readonly Door[];
}

interface SiteOptions {
  readonly isEmbedded?: boolean;
  /** Sections of the configuration. */
  readonly config?: string;
  readonly limits?: string;
}

function toolCall(isEmbedded: boolean) {
  const args = { database: "main", from: "t", columns: ["*"] };
  const params = isEmbedded ? { name: "select", arguments: args } : { name: "look", arguments: {} };
  return statelessCall("tools/call", params);
}

/** Starts a gateway with a recording upstream. Both end with the test. */
export async function openSite(t: Test, options: SiteOptions = {}): Promise<Site> {
  const { isEmbedded = false, config = "", limits } = options;
  const witness = await new Witness().listen(t);
  const upstream = `[mcp]\nupstream = "${witness.url}/mcp"\n${policy}`;
  const gateway = await startGateway(t, {
    upstream: witness.url,
    config: `${config}${routes}${isEmbedded ? "" : upstream}`,
    ...(limits === undefined ? {} : { limits }),
  });
  const token = await gateway.login();
  const headers = queryHeaders(token);
  const call = toolCall(isEmbedded);
  const query = { name: "/query", line: "POST /query", headers, body: select };
  const route = { ...query, name: "a route", line: "POST /db/main/stats" };
  const mcp = {
    name: isEmbedded ? "/mcp with the embedded server" : "/mcp with an upstream server",
    line: "POST /mcp",
    headers: { ...call.headers, Authorization: `Bearer ${token}` },
    body: call.body,
  };
  return { gateway, witness, token, query, route, mcp, doors: [query, route, mcp] };
}

export interface Odd {
  readonly line?: string;
  readonly version?: string;
  readonly host?: string;
  readonly head?: string;
  readonly body?: string;
}

/** The bytes of a valid request to an endpoint, with some parts replaced. */
export function through(door: Door, odd: Odd = {}): string {
  const { line = door.line, version = "HTTP/1.1", host = "127.0.0.1", body = door.body } = odd;
  const { head = `Content-Length: ${door.body.length}\r\nConnection: close\r\n` } = odd;
  const own = Object.entries({ Host: host, ...door.headers });
  const fields = own.map(([name, value]) => `${name}: ${value}\r\n`).join("");
  return `${line} ${version}\r\n${fields}${head}\r\n${body}`;
}

/** Sends bytes on a new connection and reads until the gateway closes it. */
export async function sendBytes({ gateway }: Site, bytes: string): Promise<string> {
  const wire = await Wire.open(gateway.url);
  wire.send(bytes);
  return wire.untilClosed();
}

export function statusesOf(text: string): number[] {
  return Array.from(text.matchAll(/HTTP\/1\.1 (\d{3}) /g), ([, status]) => Number(status));
}

/** Checks that a text is exactly one refusal in the documented shape. */
export function checkRefused(t: Test, text: string, status: number, code: string, what: string) {
  const [head = "", body = ""] = text.split("\r\n\r\n");
  const field = (name: string) => new RegExp(`^${name}: (.*)$`, "m").exec(head)?.[1];
  const seen = {
    statuses: statusesOf(text).join(),
    type: field("Content-Type"),
    decision: field("X-Gatehouse-Decision"),
    connection: field("Connection"),
    body: JSON.parse(body),
  };
  const wanted = {
    statuses: new RegExp(`^${status}$`),
    type: /^application\/json/,
    decision: /^deny$/,
    connection: /^close$/,
    body: { status: /^error$/, code, message: /./, request_id: field("X-Request-Id") ?? /^$/ },
  };
  t.match(seen, wanted, what);
}
