import { Ajv2020 } from "ajv/dist/2020.js";
import fc from "fast-check";
import t from "tap";
import { z } from "zod";
import { createGrammar } from "../../src/core/query/grammar.ts";
import type { Level } from "../../src/core/query/kind.ts";
import { definitions, operationNames } from "../../src/core/query/operations.ts";
import { parseQuery } from "../../src/core/query/parse.ts";
import {
  decodeHeaderValue,
  encodeHeaderValue,
  McpRefused,
  readMessage,
} from "../../src/features/mcp/message.ts";
import { readHeaderDeclarations } from "../../src/features/mcp/stdio.ts";
import { operationTool } from "../../src/features/mcp/tool-definitions.ts";
import { ask } from "../kit/client.ts";
import { openEmbedded } from "./kit.ts";
import { statelessCall } from "./messages.ts";

const MAX_LIST_BYTES = 16 * 1024;

const listed = z.object({
  result: z.object({
    tools: z.array(
      z.object({
        name: z.string(),
        title: z.string(),
        description: z.string(),
        inputSchema: z.record(z.string(), z.unknown()),
        annotations: z.record(z.string(), z.boolean()),
      }),
    ),
  }),
});

const grants = { alice: { "*": "Owner" } } as const;
const approvals = '[[boundaries]]\nvia = "mcp"\nrequire_approval = ["DELETE"]\n';

async function listAt(level: Level, access = "") {
  const { endpoint } = await openEmbedded(t, { grants, level, access });
  const text = (await ask(endpoint.url, statelessCall("tools/list"))).body.toString();
  return { text, tools: listed.parse(JSON.parse(text)).result.tools };
}

const { text, tools } = await listAt("full");

function toolNamed(name: string) {
  const tool = tools.find((candidate) => candidate.name === name);
  if (tool === undefined) throw new Error(`no tool ${name}`);
  return tool;
}

t.test("the list of all tools is shorter than 16 KiB", async (t) => {
  t.ok(text.length < MAX_LIST_BYTES, `${text.length} bytes`);
  const approved = await listAt("full", approvals);
  const { inputSchema } = approved.tools.find(({ name }) => name === "delete") ?? {};
  t.match(inputSchema, { properties: { approval: { type: "string" } } });
  const bytes = approved.text.length;
  t.ok(bytes < MAX_LIST_BYTES, `${bytes} bytes with approvals`);
});

t.test("no word is listed twice, and conditions are described only once", async (t) => {
  for (const [, words = ""] of text.matchAll(/"enum":\[(.*?)\]/g)) {
    const list = words.split(",");
    t.equal(new Set(list).size, list.length, words);
  }
  t.equal(text.match(/"LIKE"/g)?.length, 1);
  t.match(toolNamed("delete").inputSchema, {
    properties: { where: { description: /null, which must be explicit.*As in select\.$/ } },
  });
});

t.test("descriptions name what is not supported", async (t) => {
  for (const name of ["select", "insert", "update", "create_table", "batch"])
    t.match(toolNamed(name).description, /Not supported: /, name);
});

t.test("tools take title, description and annotations from their operations", async (t) => {
  for (const [name, operation] of [
    ["select", "Select"],
    ["create_table", "CreateTable"],
    ["drop_table", "DropTable"],
  ] as const) {
    const { title, description } = definitions[operation];
    t.match(toolNamed(name), { title, description });
  }
  const annotations = {
    select: { readOnlyHint: true, openWorldHint: false },
    insert: { readOnlyHint: false, destructiveHint: false, idempotentHint: false },
    update: { readOnlyHint: false, destructiveHint: true, idempotentHint: false },
    delete: { readOnlyHint: false, destructiveHint: true },
  };
  for (const [name, expected] of Object.entries(annotations))
    t.match(toolNamed(name).annotations, expected, name);
});

const compare = (cmp: string, value: unknown) => ({ column: "users.id", cmp, value });
const alternatives = [{ or: [compare("=", null), compare("LIKE", "a%")] }];
const select = {
  database: "main",
  from: "users",
  columns: ["id", "orders.total"],
  where: { and: [...alternatives, { not: compare("IN", [1, 2]) }, compare("BETWEEN", [1, 2])] },
  join: [{ table: "orders", on: "users.id = orders.user_id", join_type: "LEFT" }],
  order_by: [{ column: "id", direction: "DESC" }],
  limit: 10,
  offset: 5,
};

t.test("the schema of select accepts what the grammar accepts", async (t) => {
  const holds = new Ajv2020().compile(toolNamed("select").inputSchema);
  t.notMatch(text, '"oneOf":[{"type":', "some clients keep only the objects of alternatives");
  const renamed = { ...select, from: { table: "users", as: "users" } };
  for (const args of [select, renamed, { ...select, where: undefined, columns: ["*"] }])
    t.ok(holds(JSON.parse(JSON.stringify(args))), JSON.stringify(holds.errors));
  t.notOk(holds({ ...select, where: compare("==", 1) }));
  t.notOk(holds({ ...select, where: { and: [{ nor: [] }] } }));
  const { from: _, ...incomplete } = select;
  t.notOk(holds(incomplete));
});

for (const level of ["full", "core"] as const) {
  t.test(`each tool has an example that fits its schema and the ${level} grammar`, async (t) => {
    const grammar = createGrammar({ extraFields: [], operations: {}, level });
    for (const { name, inputSchema } of (await listAt(level)).tools) {
      const { examples } = z
        .object({ examples: z.array(z.unknown()).length(1) })
        .parse(inputSchema);
      const holds = new Ajv2020({ allowUnionTypes: true }).compile(inputSchema);
      t.ok(holds(examples[0]), `${name}: ${JSON.stringify(holds.errors)}`);
      t.notOk(holds({ ...Object(examples[0]), more: 1 }), `${name}: another field`);
      const operation = operationNames.find((operation) => operationTool(operation) === name);
      if (operation === undefined) continue;
      const body = Buffer.from(JSON.stringify({ [operation]: examples[0] }));
      t.equal(parseQuery(body, grammar).accesses.length, 1, name);
    }
  });
}

t.test("tools at level core mention nothing of the full grammar", async (t) => {
  const { text, tools } = await listAt("core");
  const names = tools.map(({ name }) => name);
  for (const name of ["upsert", "preview", "count"]) t.notOk(names.includes(name), name);
  for (const word of [
    "ILIKE",
    "NOT IN",
    "group_by",
    "aggregate",
    "having",
    "distinct",
    "returning",
    "add",
    "after",
    "Upsert",
    "on_conflict",
    "default",
    "references",
    "other",
    "escape",
    "fold",
    "compute",
  ]) {
    t.notOk(text.includes(`"${word}"`) || text.includes(`next_${word}`), word);
  }
  t.notMatch(text, /Upsert/);
  const { inputSchema } = tools.find(({ name }) => name === "select") ?? {};
  const order = { type: "object", properties: { column: { type: "string" } } };
  t.match(inputSchema, { properties: { order_by: order, join: { type: "object" } } });
});

const region = { type: "string", "x-mcp-header": "Region" };

t.test("header declarations are found on nested properties", async (t) => {
  const place = { type: "object", properties: { region, "x-mcp-header": { type: "string" } } };
  const schema = {
    type: "object",
    properties: { place, page: { type: "integer", "x-mcp-header": "Page" }, note: {} },
    default: { "x-mcp-header": "data, not a declaration" },
  };
  t.strictSame(readHeaderDeclarations(schema), [
    { path: ["place", "region"], header: "Region" },
    { path: ["page"], header: "Page" },
  ]);
  for (const none of [undefined, true, {}, { properties: [] }]) {
    t.strictSame(readHeaderDeclarations(none), []);
  }
});

t.test("a header declaration anywhere else, or an invalid one, is refused", async (t) => {
  const properties = { region };
  const refused: Record<string, object> = {
    "at the root": region,
    "of an element": { properties: { all: { type: "array", items: region } } },
    "of an alternative": { anyOf: [{ properties }] },
    "under a condition": { if: {}, else: { properties } },
    "in a definition": { $defs: { place: { properties } } },
    "of other properties": { additionalProperties: region },
    "by a pattern": { patternProperties: { "^r": region } },
    "under an unknown keyword": { somewhere: { properties } },
    "on a number": { properties: { region: { ...region, type: "number" } } },
    "on an object": { properties: { region: { ...region, type: "object" } } },
    "on any type": { properties: { region: { "x-mcp-header": "Region" } } },
    "without a name": { properties: { region: { ...region, "x-mcp-header": "" } } },
    "with an invalid name": { properties: { region: { ...region, "x-mcp-header": "a\r\nb" } } },
    "with a name in two cases": {
      properties: { region, other: { ...region, "x-mcp-header": "REGION" } },
    },
  };
  for (const [where, schema] of Object.entries(refused)) {
    t.throws(() => readHeaderDeclarations(schema), /x-mcp-header/, where);
  }
});

t.test("every text survives encoding as a header value", async (t) => {
  t.equal(encodeHeaderValue("us-west1"), "us-west1");
  for (const text of ["", " padded ", "line\nline", "=?base64?literal?=", "世界"]) {
    t.match(encodeHeaderValue(text), /^=\?base64\?.*\?=$/);
  }
  fc.assert(
    fc.property(fc.string({ unit: "grapheme" }), (text) => {
      const value = encodeHeaderValue(text);
      return decodeHeaderValue(value) === text && value === value.trim();
    }),
  );
});

const call = '"jsonrpc":"2.0","id":1,"method":"tools/call"';

t.test("a message keeps its method, name, version and the bytes of its arguments", async (t) => {
  const meta = '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}';
  const args = '"arguments":{"id":9223372036854775807,"n\\u0061me":[1.50, {"a":"b"}]}';
  const message = await readMessage(
    Buffer.from(` {${call},"params":{"name":"inse\\u0072t",${args},${meta}}} `),
  );
  const kind = "request";
  const named = { name: "insert", protocolVersion: "2026-07-28" };
  t.match(message, { kind, id: 1, method: "tools/call", ...named });
  t.equal(`"arguments":${message.arguments}`, args);
  const reading = await readMessage(
    Buffer.from('{"jsonrpc":"2.0","id":"x","method":"resources/read","params":{"uri":"a:b"}}'),
  );
  t.match(reading, { id: "x", name: "a:b", protocolVersion: undefined, arguments: undefined });
  const notification = '{"jsonrpc":"2.0","method":"notifications/cancelled"}';
  t.match(await readMessage(Buffer.from(notification)), { kind: "notification", id: undefined });
  const response = '{"jsonrpc":"2.0","id":3,"result":{}}';
  t.match(await readMessage(Buffer.from(response)), { kind: "response", id: 3, method: "" });
});

t.test("the name of a message is the member that its method identifies", async (t) => {
  const params = { name: "a", uri: "b", taskId: "c" };
  const names = {
    "tools/call": "a",
    "prompts/get": "a",
    "resources/read": "b",
    "tasks/get": "c",
    "tasks/update": "c",
    "tasks/cancel": "c",
    "tools/list": undefined,
  };
  for (const [method, name] of Object.entries(names)) {
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
    t.equal((await readMessage(Buffer.from(body))).name, name, method);
  }
});

t.test("a body that is not JSON in UTF-8 is a parse error", async (t) => {
  const bodies = [
    "",
    "{",
    `{${call},}`,
    "\ufeff{}",
    Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]),
    `{${call},"params":{"name":"\\ud800"}}`,
  ];
  for (const body of bodies) {
    const error = await readMessage(Buffer.from(body)).catch((error: unknown) => error);
    t.ok(error instanceof McpRefused && error.rpcCode === -32700, String(body));
  }
});
