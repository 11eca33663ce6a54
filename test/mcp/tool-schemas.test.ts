import { Ajv2020 } from "ajv/dist/2020.js";
import t from "tap";
import { z } from "zod";
import { toolNameOf } from "../../src/mcp/tool-definitions.ts";
import { createGrammar } from "../../src/query/grammar.ts";
import type { Level } from "../../src/query/kind.ts";
import { definitions, operationNames } from "../../src/query/operations.ts";
import { scan } from "../../src/query/scan.ts";
import { ask } from "../kit/client.ts";
import { openEmbedded } from "./kit.ts";
import { statelessCall } from "./messages.ts";

/** Bytes of a list of all tools that a model has to read before it does anything. */
const LARGEST_LIST = 12 * 1024;

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

async function listAt(level: Level) {
  const { endpoint } = await openEmbedded(t, { grants, level });
  const text = (await ask(endpoint.url, statelessCall("tools/list"))).body.toString();
  return { text, tools: listed.parse(JSON.parse(text)).result.tools };
}

const { text, tools } = await listAt("full");

function toolNamed(name: string) {
  const tool = tools.find((candidate) => candidate.name === name);
  if (tool === undefined) throw new Error(`no tool ${name}`);
  return tool;
}

t.test("the list of all tools is short", async (t) => {
  t.ok(text.length < LARGEST_LIST, `${text.length} bytes`);
});

t.test("a tool is told of as its operation of the grammar is", async (t) => {
  for (const [name, operation] of [
    ["select", "Select"],
    ["create_table", "CreateTable"],
    ["drop_table", "DropTable"],
  ] as const) {
    const { title, description } = definitions[operation];
    t.match(toolNamed(name), { title, description });
  }
  t.match(toolNamed("select").annotations, { readOnlyHint: true, openWorldHint: false });
  t.match(toolNamed("insert").annotations, { readOnlyHint: false, destructiveHint: false });
  t.match(toolNamed("insert").annotations, { idempotentHint: false });
  t.match(toolNamed("update").annotations, { destructiveHint: true, idempotentHint: false });
  t.match(toolNamed("delete").annotations, { readOnlyHint: false, destructiveHint: true });
});

const ofUsers = { database: "main", table: "users" };
const compare = (cmp: string, value: unknown) => ({ column: "users.id", cmp, value });
const right: Readonly<Record<string, readonly object[]>> = {
  list_databases: [{}],
  describe_table: [ofUsers],
  select: [
    { database: "main", from: "users", columns: ["*"] },
    {
      database: "main",
      from: "users",
      columns: ["id", "orders.total"],
      where: {
        and: [
          { or: [compare("=", null), compare("LIKE", "a%")] },
          { not: compare("IN", [1, 2]) },
          compare("BETWEEN", [1, 2]),
        ],
      },
      join: [{ table: "orders", on: "users.id = orders.user_id", join_type: "LEFT" }],
      order_by: [{ column: "id", direction: "DESC" }],
      limit: 10,
      offset: 5,
    },
  ],
  insert: [{ ...ofUsers, values: [{ id: 1, name: "Ann" }] }],
  update: [{ ...ofUsers, set: { name: "Ann" }, where: null }],
  delete: [{ ...ofUsers, where: compare(">", 1) }],
  create_table: [{ ...ofUsers, columns: [{ name: "id", type: "int", primary_key: true }] }],
  drop_table: [ofUsers],
};

t.test("a schema holds for what the grammar takes, and for no other field", async (t) => {
  for (const [name, examples] of Object.entries(right)) {
    const holds = new Ajv2020().compile(toolNamed(name).inputSchema);
    for (const example of examples)
      t.ok(holds(example), `${name}: ${JSON.stringify(holds.errors)}`);
    t.notOk(holds({ ...examples[0], more: 1 }), name);
  }
  const isSelect = new Ajv2020().compile(toolNamed("select").inputSchema);
  const [plain] = right.select ?? [];
  t.notOk(isSelect({ ...plain, where: compare("==", 1) }));
  t.notOk(isSelect({ ...plain, from: undefined }));
  t.notOk(isSelect({ ...plain, where: { and: [{ nor: [] }] } }));
});

for (const level of ["full", "core"] as const) {
  t.test(`each tool has one example that its schema and the ${level} grammar take`, async (t) => {
    const grammar = createGrammar({ extraFields: [], operations: {}, level });
    for (const { name, inputSchema } of (await listAt(level)).tools) {
      const { examples } = z
        .object({ examples: z.array(z.unknown()).length(1) })
        .parse(inputSchema);
      const holds = new Ajv2020({ allowUnionTypes: true }).compile(inputSchema);
      t.ok(holds(examples[0]), `${name}: ${JSON.stringify(holds.errors)}`);
      const operation = operationNames.find((operation) => toolNameOf(operation) === name);
      if (operation === undefined) continue;
      const body = Buffer.from(JSON.stringify({ [operation]: examples[0] }));
      t.equal(scan(body, grammar).accesses.length, 1, name);
    }
  });
}

t.test("tools of the core show nothing that only the full grammar has", async (t) => {
  const { text, tools } = await listAt("core");
  const names = tools.map(({ name }) => name);
  for (const name of ["upsert", "preview", "count"]) t.notOk(names.includes(name), name);
  for (const word of [
    ...["ILIKE", "NOT IN", "group_by", "aggregate", "having", "distinct", "returning", "add"],
    ...["after", "Upsert", "on_conflict", "default", "references"],
  ]) {
    t.notOk(text.includes(`"${word}"`) || text.includes(`next_${word}`), word);
  }
  t.notMatch(text, /Upsert/);
  const { inputSchema } = tools.find(({ name }) => name === "select") ?? {};
  const order = { type: "object", properties: { column: { type: "string" } } };
  t.match(inputSchema, { properties: { order_by: order, join: { type: "object" } } });
});
