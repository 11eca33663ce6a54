import t from "tap";
import { decodeHeaderValue } from "../../src/mcp/protocol-headers.ts";
import { ask } from "../kit/client.ts";
import { openEmbedded } from "./kit.ts";
import { handshakeCall, statelessCall } from "./messages.ts";
import { openProxied } from "./proxied.ts";

function base64(text: string): string {
  return `=?base64?${Buffer.from(text).toString("base64")}?=`;
}

const call = statelessCall("tools/call", { name: "list_databases", arguments: {} });

/** The same request with some of its headers replaced, or left out where undefined. */
function withHeaders(changes: Record<string, string | undefined>) {
  const headers = Object.entries({ ...call.headers, ...changes }).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value] as const],
  );
  return { ...call, headers: Object.fromEntries(headers) };
}

const grants = { alice: { "*": "Owner" } } as const;
const disagreements = [
  { "mcp-protocol-version": undefined },
  { "mcp-protocol-version": "2025-11-25" },
  { "mcp-method": undefined },
  { "mcp-method": "tools/list" },
  { "mcp-method": "Tools/Call" },
  { "mcp-name": undefined },
  { "mcp-name": "drop_table" },
  { "mcp-name": "List_Databases" },
  { "mcp-name": "list_databases, drop_table" },
  { "mcp-name": base64("drop_table") },
  { "mcp-name": "=?base64?!!!?=" },
  { "mcp-name": "=?base64?bGlzdF9kYXRhYmFzZXM?=" },
];

for (const [place, start] of [
  ["the embedded server", openEmbedded],
  ["the proxy", openProxied],
] as const) {
  t.test(`${place} refuses headers that do not agree with the body`, async (t) => {
    const { endpoint } = await start(t, { grants });
    for (const changes of disagreements) {
      const answer = await ask(endpoint.url, withHeaders(changes));
      t.equal(answer.status, 400, JSON.stringify(changes));
      t.match(JSON.parse(answer.body.toString()), { id: 1, error: { code: -32020 } });
    }
  });

  t.test(`${place} names its versions to who claims an unknown one`, async (t) => {
    const { endpoint } = await start(t, { grants });
    const body = call.body.replace("2026-07-28", "2099-01-01");
    const headers = { ...call.headers, "mcp-protocol-version": "2099-01-01" };
    const answer = await ask(endpoint.url, { ...call, headers, body });
    t.equal(answer.status, 400);
    t.match(JSON.parse(answer.body.toString()).error, {
      code: -32022,
      data: { supported: ["2026-07-28"], requested: "2099-01-01" },
    });
  });
}

t.test("a name in base64 stands for what it encodes", async (t) => {
  const { endpoint } = await openEmbedded(t, { grants });
  const answer = await ask(endpoint.url, withHeaders({ "mcp-name": base64("list_databases") }));
  t.equal(answer.status, 200);
  t.match(JSON.parse(answer.body.toString()).result, {
    structuredContent: { databases: ["main"] },
  });
});

t.test("header values are decoded strictly", async (t) => {
  t.equal(decodeHeaderValue("plain value"), "plain value");
  t.equal(decodeHeaderValue(base64("Hello, 世界")), "Hello, 世界");
  t.equal(decodeHeaderValue(base64("")), "");
  t.equal(decodeHeaderValue("=?base64?unfinished"), "=?base64?unfinished");
  t.equal(decodeHeaderValue("=?BASE64?YQ==?="), "=?BASE64?YQ==?=");
  for (const bad of [
    "caf\u00e9",
    "a\u0001",
    "=?base64?YQ?=",
    "=?base64?YR==?=",
    "=?base64?/w==?=",
  ]) {
    t.equal(decodeHeaderValue(bad), undefined, JSON.stringify(bad));
  }
});

t.test("clients before 2026-07-28 need not mirror the body", async (t) => {
  const { endpoint } = await openEmbedded(t, { grants });
  const older = (headers: Record<string, string>) =>
    ask(endpoint.url, handshakeCall("tools/list", {}, headers));
  t.equal((await older({})).status, 200);
  t.equal((await older({ "mcp-protocol-version": "2025-06-18" })).status, 200);
  t.equal((await older({ "mcp-method": "tools/list" })).status, 200);
  const liar = await older({ "mcp-method": "ping" });
  t.equal(liar.status, 400, "what they send must agree all the same");
  t.match(JSON.parse(liar.body.toString()).error, { code: -32020 });
});

t.test("GET and DELETE are not for a server without sessions", async (t) => {
  const { endpoint } = await openEmbedded(t, { grants });
  const headers = { accept: "text/event-stream" };
  t.equal((await ask(endpoint.url, { method: "GET", headers })).status, 405);
  t.equal((await ask(endpoint.url, { method: "DELETE" })).status, 405);
});
